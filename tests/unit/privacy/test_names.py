"""Names of persons and postal addresses: where they stand, and words that only look like them."""

import pytest

from shared.privacy.names import NAMES
from shared.privacy.recognizers import BUILT_IN
from shared.privacy.scrubber import Scrubber

SCRUBBER = Scrubber((*BUILT_IN, *NAMES))


def found(text: str, entity: str) -> list[str]:
    return [text[span.start : span.end] for span in SCRUBBER.detect(text) if span.entity == entity]


NAMES_IN_CONTEXT = [
    ("主治陈志远医师查房后同意出院。", ["陈志远"]),
    ("手术由欧阳明主刀，赵晓燕担任助手。", ["欧阳明", "赵晓燕"]),
    ("王海涛，男，45岁，因胸痛入院。", ["王海涛"]),
    ("紧急联系人刘芳（配偶）", ["刘芳"]),
    ("姓名\t何雨欣\t性别\t女", ["何雨欣"]),
    ('{"patient_name": "郑国强", "age": 33}', ["郑国强"]),
    ("姓名,手机\n孙丽娟,13800138000\n", ["孙丽娟"]),
    ("抄送：马建军、徐敏", ["马建军", "徐敏"]),
    ("尊敬的李女士：您的快递已到", ["李女士"]),
    ("张工，您好，阀门还在漏。", ["张工"]),
    ("现场由司徒嘉怡签字", ["司徒嘉怡"]),
    ("联系 Carrie Tucker，电话另附", ["Carrie Tucker"]),
    ("（签名）石建国", ["石建国"]),
    ("@包慧 请处理一下", ["包慧"]),
    ("白玉兰，男，45岁，因胸痛入院", ["白玉兰"]),
    ("姓名\t毛凤英\t性别\t女", ["毛凤英"]),
    ("Please call Samantha K. Doyle back.", ["Samantha K. Doyle"]),
    ("Best regards,\nHenrik Larsen", ["Henrik Larsen"]),
    ("Dear Mr. Hall, thank you", ["Hall"]),
    ("Dr. Okonkwo will see you", ["Okonkwo"]),
    ("Yang Jiahe and Xiaomei Hu signed", ["Yang Jiahe", "Xiaomei Hu"]),
    ("Kevin Williams's account was closed", ["Kevin Williams"]),
    ("name: Abigail Green, age 40", ["Abigail Green"]),
    ("Customer: Niamh O'Sullivan.", ["Niamh O'Sullivan"]),
    ("护士常焱记录：睡眠可", ["常焱"]),
    ("请石东海主任会诊，已通知秦星医生", ["石东海", "秦星"]),
    ("来函核实谭志（650104193506130019）", ["谭志"]),
    ("叉车工令狐军违规，已联系尉迟清扬本人", ["令狐军", "尉迟清扬"]),
    ("巡检人刘婷发现振动", ["刘婷"]),
    ("接待：严爱国，事由：调试", ["严爱国"]),
    ("姓名：金景行，血钾高", ["金景行"]),
    ("Hi 向红霞，请check一下", ["向红霞"]),
    ("成员：农琳、董五洲", ["农琳", "董五洲"]),
    ("Hi Susan, this is Chen Jing.", ["Susan", "Chen Jing"]),
    ("consultant Dr Harris; ward 7", ["Harris"]),
    ("approved by MARGARET ELLISON today", ["MARGARET ELLISON"]),
]


@pytest.mark.parametrize(("text", "names"), NAMES_IN_CONTEXT, ids=[text[:20] for text, _ in NAMES_IN_CONTEXT])
def test_names_are_found_where_they_stand(text: str, names: list[str]) -> None:
    assert found(text, "PERSON") == names


NO_NAMES = [
    "李宁牌运动鞋五折",
    "张江高科技园区的王府井大街施工",
    "高温高压设备需要定期检查，黄金价格上涨",
    "项目负责人会议将在周三召开，工作人员于今日到岗",
    "用户来信：我换了新住处",
    "Madison Square Garden is closed on Monday.",
    "The Hong Kong caller asked for a refund.",
    "Austin Texas and Virginia Beach are far from Boston Harbor.",
    "Read the LLVM C API before April May June reports.",
    "name: Ruff, version: Application Layer Gateway Service",
    "Chase Bank and Grant Park Station reopen; St. Thomas Hospital Street",
    "本院由高级工程师和主任医师带队，常驻专家、资深教授、全科医生共同参与，江苏、安徽均有门店",
    "患者高度近视，曾于常州就诊；客户尚未签收，用户明确表示不再续费，负责人安排会议",
    "用户：方便吗  用户：谢谢  客户：高价值客户  负责人：暂无  班长：空缺",
    "石油工程师、水利工程师、安全工程师、单身女士、成年男士",
    "温馨提示（400开头）、单位（12345678平方米）、金额（1234567元）",
    "请高层领导批示，请金融部门配合，请尽快补交，周一到场",
    "Morgan Stanley, Wells Fargo and Goldman Sachs; Earl Grey in the Rose Garden; Hong Kong",
    "Hi team, Dear Customer, Hello World, Dear Sir",
    "Pump Station North, Valve House, Main Street, Plant Manager",
]


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_only_looks_like_a_name_stays(text: str) -> None:
    assert found(text, "PERSON") == []


ADDRESSES = [
    ("客户住广州市天河区体育西路111号建和中心12楼B座，请派人。", "广州市天河区体育西路111号建和中心12楼B座"),
    ("北京市朝阳区建国路88号SOHO现代城3号楼1201室", "北京市朝阳区建国路88号SOHO现代城3号楼1201室"),
    ("寄到浙江省义乌市稠城街道香樟小区5幢2单元301室，周五前。", "浙江省义乌市稠城街道香樟小区5幢2单元301室"),
    ("家住徐汇区漕溪北路18号", "徐汇区漕溪北路18号"),
    ("户籍地址：四川省绵阳市三台县芦溪镇红旗村3组12号。", "四川省绵阳市三台县芦溪镇红旗村3组12号"),
    ("收货地址:深圳市南山区科技园南区高新南七道12号综合楼501", "深圳市南山区科技园南区高新南七道12号综合楼501"),
    ("新疆维吾尔自治区乌鲁木齐市天山区解放北路30号附2号", "新疆维吾尔自治区乌鲁木齐市天山区解放北路30号附2号"),
    ("台北市大安区忠孝东路四段230号5楼", "台北市大安区忠孝东路四段230号5楼"),
    ("病人住在中山路５号，独居", "中山路５号"),
]


@pytest.mark.parametrize(("text", "address"), ADDRESSES, ids=[address[:12] for _, address in ADDRESSES])
def test_addresses_reach_from_the_first_place_to_the_last_number(text: str, address: str) -> None:
    assert found(text, "ADDRESS") == [address]


@pytest.mark.parametrize(
    "text",
    [
        "我昨天去了北京，坐了3号线，到站步行5分钟。",
        "广东省共有21个市，GDP增长5.1%。",
        "请到A3会议室，3号楼5层。",
        "上海证券交易所 600519 号文件",
        "2号泵和3号阀门在一层，18号开会",
    ],
)
def test_numbers_beside_places_are_no_address(text: str) -> None:
    assert found(text, "ADDRESS") == []
