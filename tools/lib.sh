# Shared by the scripts in this folder; sourced, not run.

say() { printf 'tailrace: %s\n' "$*" >&2; }

# One line that says what is missing and what to do, then the end.
stop() {
    say "$*"
    exit 1
}

# Whether packages may be installed without asking: root on Debian, Ubuntu or a relative.
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

# The package lists of a fresh image are empty, so they are fetched first. The output goes to
# standard error: callers print a path on standard output.
apt_update() { apt-get update -qq >&2 </dev/null; }
apt_install() {
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 </dev/null
}
