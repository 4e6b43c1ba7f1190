# Makes bare Debians (debootstrap, minbase) in folders. To be sourced.

# The site that this system's own packages of Debian come from.
debian_site="$(apt-get indextargets --format '$(ORIGIN) $(SITE)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)"
[ -n "$debian_site" ] || { echo "error: this system has no packages of Debian's: nothing tells where to fetch a bare one" >&2; exit 1; }

# Replaces WORK/RELEASE with a bare system that uses this one's network settings and the release's packages. debootstrap runs
# once; its result stays in WORK/RELEASE.tar, and later calls extract that file.
bare_debian() { # RELEASE WORK
  local release=$1 work=$2 root="$2/$1" base="$2/$1.tar"
  if [ ! -e "$base" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase "$release" "$root" "$debian_site" >"$work/debootstrap.log" || { tail "$work/debootstrap.log"; exit 1; }
    tar cf "$base.new" -C "$root" .
    mv "$base.new" "$base"
  fi
  rm -rf "$root"
  mkdir -p "$root"
  tar xf "$base" -C "$root"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  echo "deb $debian_site $release main" >"$root/etc/apt/sources.list"
  grep -ls '^Acquire::Check' /etc/apt/apt.conf.d/* | xargs -r cp -t "$root/etc/apt/apt.conf.d"
}
