"""One module per engine. A peer's module imports nothing of ours but the workloads: it runs in the peers' venv."""
