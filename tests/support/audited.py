"""Run cfglint under an audit hook that records file access, code, processes and connections as JSON lines.

python audited.py REPORT ARGUMENTS...
"""

import os
import sys

_READ_EVENTS = ("open", "os.listdir", "os.scandir", "os.chdir")
_CHANGE_EVENTS = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate",
    "os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod", "shutil.rmtree", "shutil.move",
)  # fmt: skip
_START_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main() -> None:
    """Install the hook and run the command."""
    report = open(sys.argv[1], "a", buffering=1)  # noqa: SIM115
    busy = False

    def report_event(kind: str, *details: object) -> None:
        report.write(
            "\t".join((kind, *(str(detail).replace("\n", " ").replace("\t", " ") for detail in details))) + "\n"
        )

    def handle_event(event: str, arguments: tuple) -> None:  # type: ignore[type-arg]
        nonlocal busy
        if busy:
            return
        busy = True
        try:
            if event == "open":
                path, _, flags = arguments
                if not isinstance(path, int):
                    report_event("write" if flags & _WRITE_FLAGS else "read", os.path.realpath(os.fsdecode(path)))
            elif event in _READ_EVENTS and arguments and arguments[0] is not None and not isinstance(arguments[0], int):
                report_event("read", os.path.realpath(os.fsdecode(arguments[0])))
            elif event in _CHANGE_EVENTS:
                for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
                    if isinstance(path, (str, bytes)):
                        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
                        report_event("write", os.path.join(os.path.realpath(folder), name))
            elif event == "exec":
                origin = arguments[0].co_filename
                report_event("exec", origin if origin[:1] != "<" else f"{origin} {sys._getframe(1).f_code.co_filename}")
            elif event in _START_EVENTS:
                report_event("start", event, *arguments)
            elif event.startswith(("socket.", "ssl.", "urllib.", "http.", "ftplib.", "smtplib.")):
                report_event("connect", event, *arguments)
        finally:
            busy = False

    sys.addaudithook(handle_event)
    from cfglint_train.front.cli import main as command

    sys.argv = ["cfglint", *sys.argv[2:]]
    sys.exit(command(sys.argv[1:]))


main()
