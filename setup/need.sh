#!/usr/bin/env bash
# Sees to what a make target needs before anything is built: finds what is missing, installs it where apt and root can, and
# otherwise says in one line what is missing and which command gets it. Asks for nothing where everything is there.
#   setup/need.sh GROUP...   groups: rust run test python bench conformance clients go http-front monitoring npm nfs deb dist container fresh
# WEIR_NO_INSTALL=1 installs nothing: it only says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
# Servers are in folders that are not in the PATH of every user, and rustup's programs in one that a new shell has.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-/nonexistent}/.cargo}/bin"

# What a group needs, and the Debian package that has it: programs, files (with a slash), modules of Perl and Python, and
# what is written in C.
needs() {
  case $1 in
    rust) echo "cc:gcc cc-headers:libc6-dev" ;;
    run) echo "git:git python3:python3-minimal" ;;
    test)
      echo "git:git python:sqlite3:python3 python:tarfile:python3 make:make git-lfs:git-lfs bsdtar:libarchive-tools busybox:busybox-static nginx:nginx"
      echo "fcgiwrap:fcgiwrap openssl:openssl /usr/lib/postgresql/*/bin/initdb:postgresql sqlite3:sqlite3"
      echo "/usr/lib/cgit/cgit.cgi:cgit /usr/share/gitweb/gitweb.cgi:gitweb perl:CGI:libcgi-pm-perl curl:curl ssh:openssh-client"
      echo "gzip:gzip mkfs.ext2:e2fsprogs losetup:mount setpriv:util-linux fusermount3:fuse3 fuse-overlayfs:fuse-overlayfs ninja:ninja-build"
      ;;
    python) echo "python:venv:python3-venv python:ensurepip:python3-venv python:pip:python3-pip" ;;
    bench) echo "perl:IO::Multiplex:libio-multiplex-perl wrk:wrk /usr/sbin/rsyslogd:rsyslog ab:apache2-utils /usr/sbin/nginx:nginx" ;;
    conformance)
      echo "make:make perl:perl xz:xz-utils dpkg-source:dpkg-dev /usr/include/zlib.h:zlib1g-dev apache2:apache2"
      echo "/usr/include/*/curl/curl.h:libcurl4-openssl-dev"
      ;;
    clients)
      echo "go:golang mvn:maven javac:default-jdk-headless npm:npm apache2:apache2 haproxy:haproxy sshd:openssh-server chromium:chromium"
      echo "ssh:openssh-client debootstrap:debootstrap /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring"
      ;;
    go) echo "go:golang" ;;
    http-front) echo "slowhttptest:slowhttptest" ;;
    monitoring) echo "promtool:prometheus" ;;
    npm) echo "npm:npm" ;;
    nfs)
      echo "qemu-system-x86_64:qemu-system-x86 exportfs:nfs-kernel-server depmod:kmod cpio:cpio ip:iproute2 unshare:util-linux"
      ;;
    deb) echo "dpkg-shlibdeps:dpkg-dev lintian:lintian" ;;
    dist) echo "objcopy:binutils" ;;
    container) echo "buildah:buildah debootstrap:debootstrap /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring" ;;
    fresh) echo "debootstrap:debootstrap /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring unshare:util-linux" ;;
    *) echo "setup/need.sh: no group '$1'" >&2; return 2 ;;
  esac
}

# Whether the thing is there.
is_there() {
  case $1 in
    perl:*) perl -M"${1#perl:}" -e 1 2>/dev/null ;;
    python:*) python3 -c "import ${1#python:}" 2>/dev/null ;;
    cc-headers) echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1 ;;
    */*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

has_certificates() {
  local file
  for file in "${SSL_CERT_FILE:-}" "${CARGO_HTTP_CAINFO:-}" /etc/ssl/certs/ca-certificates.crt \
    /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    [ -s "$file" ] && return
  done
  return 1
}

fail() {
  echo "error: $1" >&2
  exit 1
}

# Rust that is new enough, which no release of Debian has.
check_rust() {
  local least found
  least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  # CARGO may have options, as in make.
  # shellcheck disable=SC2086
  found=$(${CARGO:-cargo} --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p') || true
  if [ "$(printf '%s\n' "$least" "${found:-0}" | sort -V | head -n 1)" != "$least" ]; then
    fail "weir needs Rust $least or newer, and ${found:+only }${found:-no Rust} is here; get it with:  curl -sSf https://sh.rustup.rs | sh -s -- -y   (needs curl and ca-certificates; on Debian 13 also:  apt-get install -t trixie-backports cargo)"
  fi
}

case " $* " in *" rust "*) check_rust ;; esac
missing=() packages=()
for group in "$@"; do
  needs "$group" >/dev/null
  while read -r need; do
    thing=${need%:*} package=${need##*:}
    is_there "$thing" && continue
    missing+=("${thing##*/}")
    packages+=("$package")
  done < <(needs "$group" | tr ' ' '\n')
  if [ "$group" = rust ] && ! has_certificates && command -v apt-get >/dev/null; then
    missing+=("certificates")
    packages+=(ca-certificates)
  fi
done

if [ ${#packages[@]} -gt 0 ]; then
  list=$(printf '%s\n' "${packages[@]}" | sort -u | tr '\n' ' ')
  list=${list% }
  said="missing: $(printf '%s\n' "${missing[@]}" | awk '!seen[$0]++' | paste -sd ' ')"
  command -v apt-get >/dev/null || fail "$said; install them with your system's packages (Debian's are: $list)"
  install=(apt-get install -y --no-install-recommends)
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
    # A password can only be given at a terminal.
    { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; } ||
      fail "$said; as root, run:  apt-get update && ${install[*]} $list"
  fi
  [ -z "${WEIR_NO_INSTALL:-}" ] || fail "$said; run:  ${as_root[*]:0:1} ${install[*]} $list"
  echo "installing: $list"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  export DEBIAN_FRONTEND=noninteractive
  if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" "${install[@]}" $list; } </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "$said; apt-get could not install them (above is what it said)"
  fi
fi
