#!/usr/bin/env bash
# Print the folder of PostgreSQL's server programs; install them where that is allowed.
# With --find, only look. The tests start their own server, so no service is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh

# Links are followed: initdb finds its own files from where it really is.
on_path() {
    local initdb
    initdb=$(command -v initdb) && dirname "$(readlink -f "$initdb")"
}

find_postgres() {
    local folder
    for folder in "$(on_path)" "$(pg_config --bindir 2>/dev/null)" \
        $(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin | sort -rV); do
        if [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then
            echo "$folder"
            return
        fi
    done
    return 1
}

find_postgres && exit
missing="PostgreSQL's server programs are needed for the tests: install them (Debian and Ubuntu: apt-get install postgresql)"
[ "${1:-}" = --find ] && stop "$missing"
can_apt || stop "$missing"
apt_update
# Debian's package would create and start a cluster; its common part reads this setting first.
apt_install postgresql-common
settings=/etc/postgresql-common/createcluster.conf
if ! grep -qs '^ *create_main_cluster *= *false' "$settings"; then
    echo 'create_main_cluster = false' >>"$settings"
fi
apt_install postgresql
find_postgres || stop "$missing"
