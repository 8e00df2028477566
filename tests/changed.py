"""The files that changed, for tests that take all of them only at night."""
import shutil
import subprocess
import sys


def changed(root, since=None):
    """Paths that differ from the commit `since` (default: where this branch left origin/main; on main itself the commit before), and
    those not committed, without moved ones. Exit 77 without a history."""
    def git(*words):
        if not shutil.which("git"):
            return None
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.split("\n") if done.returncode == 0 else None

    head, base = git("rev-parse", "HEAD") or [None], since or (git("merge-base", "origin/main", "HEAD") or [None])[0]
    if not since and (base is None or base == head[0]):
        base = (git("rev-parse", "HEAD~1") or [None])[0]
    if not base:
        print("skipped: no git history here")
        sys.exit(77)
    return set(git("diff", "--name-only", "-M", "--diff-filter=AM", base) or []) | set(git("ls-files", "--others", "--exclude-standard") or [])


def first_of(wanted, most=20):
    """`wanted`, or the first of many."""
    if len(wanted) > most:
        print(f"{most} of {len(wanted)} changed files; --all takes all")
    return wanted[:most]
