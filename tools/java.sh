#!/usr/bin/env bash
# Print the home of a Java 17 or newer, which Spark 4 needs; install one where that is allowed.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh

# good HOME: does its java run, and is it new enough?
good() {
    local major
    major=$("$1/bin/java" -XshowSettings:properties -version 2>&1 |
        sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p') || return 1
    [ "${major:-0}" -ge 17 ]
}

# The home of the java on the path; macOS has a stub there, so it is asked for the answer itself.
on_path() {
    java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p'
}

find_java() {
    local home
    for home in "${JAVA_HOME:-}" "$(on_path)" /usr/lib/jvm/*; do
        if [ -n "$home" ] && [ -x "$home/bin/java" ] && good "$home"; then
            echo "$home"
            return
        fi
    done
    return 1
}

find_java && exit
can_apt || stop "Java 17 or newer is needed: install a JRE (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
apt_update
# Which versions there are depends on the release; the default one is at least 17 on current ones.
for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    if apt-cache show "$package" >/dev/null 2>&1 && apt_install "$package"; then
        find_java && exit
    fi
done
stop "Java 17 or newer is needed, and this distribution has no package of it: install one and set JAVA_HOME"
