"""A Kubernetes node by hand, from the folder `tests`: `python -m cluster up`, `in kubectl get pods`, `down`..."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from cluster import images
from cluster.binaries import NoCluster, build, search_path
from cluster.node import Node, check_machine, missing_packages


def build_all() -> None:
    """Build what is missing; on Debian, install the missing packages too."""
    check_machine()
    if packages := missing_packages():
        print(f"installing {' '.join(packages)}", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *packages],
        ):
            try:
                subprocess.run(command, check=True, env=quiet, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            except (OSError, subprocess.CalledProcessError) as error:
                raise NoCluster(f"missing packages: {' '.join(packages)}; apt-get could not install them") from error
    build(report=lambda line: print(line, flush=True))


def build_where_possible() -> None:
    """Build what can be built here, as `make test` does first; the tests skip where no cluster can be."""
    if os.environ.get("KUBECONFIG"):
        return
    try:
        build_all()
    except NoCluster as error:
        print(f"tests on Kubernetes will skip: {error}")


def up(node: Node) -> None:
    """Start the node and say how to use it."""
    build_all()
    started = time.monotonic()
    node.up()
    print(f"ready after {time.monotonic() - started:.1f} s", file=sys.stderr)
    print(f"export KUBECONFIG={node.kubeconfig} PATH={search_path()}")


def main() -> None:
    """Run the subcommand that the first word names."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    words = parser.add_subparsers(dest="word", required=True)
    building = words.add_parser("build", help="build the programs, and install the Debian packages that are missing")
    building.add_argument("--where-possible", action="store_true", help="elsewhere only say why not")
    words.add_parser("up", help="start the node; prints what to export")
    words.add_parser("down", help="stop it; images and programs stay")
    second = words.add_parser("second", help="a second node of the same cluster")
    second.add_argument(
        "what",
        choices=["up", "lose", "down"],
        help="up: add it, or let it come back; lose: end all that it runs, as without power; down: take it away",
    )
    running = words.add_parser("in", help="run a command with KUBECONFIG and PATH of the node")
    running.add_argument("command", nargs=argparse.REMAINDER)
    image = words.add_parser("image", help="build an image of this project and give it to the node")
    image.add_argument("name")
    image.add_argument("dockerfile", type=Path)
    arguments = parser.parse_args()
    node = Node()
    try:
        if arguments.word == "build":
            build_where_possible() if arguments.where_possible else build_all()
        elif arguments.word == "up":
            up(node)
        elif arguments.word == "down":
            node.down()
        elif arguments.word == "second":
            {"up": node.second.up, "lose": node.second.lose, "down": node.second.down}[arguments.what]()
        elif arguments.word == "image":
            node.load(images.build(arguments.name, arguments.dockerfile), arguments.name)
        else:
            environment = {**os.environ, "KUBECONFIG": str(node.kubeconfig), "PATH": search_path()}
            sys.exit(subprocess.run(arguments.command, check=False, env=environment).returncode)
    except NoCluster as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
