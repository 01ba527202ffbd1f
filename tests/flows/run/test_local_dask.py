"""A local Dask cluster: one for the whole run."""

import sys
import textwrap

from support.workspaces import Workspace

PROGRAM = textwrap.dedent("""
    import sys

    def main():
        import distributed

        started, closed = [], []

        class Counted(distributed.LocalCluster):
            def __init__(self, *arguments, **options):
                started.append(options["n_workers"])
                super().__init__(*arguments, **options)

            def close(self, *arguments, **options):
                closed.append(True)
                return super().close(*arguments, **options)

        distributed.LocalCluster = Counted
        sys.argv = ["supmer", "run", "--force", "sample", "--runner", "dask", "--workers", "1"]
        from flows.cli import main

        try:
            main()
        finally:
            print("clusters:", started, "closed:", bool(closed))

    if __name__ == "__main__":
        main()
""")


def test_one_local_cluster_serves_every_step_of_a_run_and_is_closed(served: Workspace):
    lock = (served.root / "dvc.lock").read_bytes()
    (served.root / "program.py").write_text(PROGRAM)
    output = served.run("program.py", program=sys.executable)
    assert "sample   ran" in output
    assert "clusters: [1] closed: True" in output
    assert (served.root / "dvc.lock").read_bytes() == lock
