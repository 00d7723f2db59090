# Sourced by the build scripts and the Makefile's recipes: what they need and do
# not find is installed, or asked for in a sentence. Uses $go and die().

# need_deb PACKAGE PROOF ...: installs each Debian package whose proof (a command
# in PATH, or a file) is missing. Silent, and no apt at all, when nothing is.
need_deb() {
	missing=
	while [ $# -gt 0 ]; do
		case $2 in
		/*) [ -e "$2" ] || missing="$missing $1" ;;
		# A machine has the sbin directories even where PATH does not name them.
		*) PATH=$PATH:/usr/sbin:/sbin command -v "$2" >/dev/null 2>&1 || missing="$missing $1" ;;
		esac
		shift 2
	done
	[ -n "$missing" ] || return 0
	command -v apt-get >/dev/null 2>&1 ||
		die "missing:$missing (Debian's package names); this is not Debian or Ubuntu, so install them by hand"
	[ "$(id -u)" = 0 ] || die "missing packages, and only root installs them: sudo apt-get install$missing"
	echo "installing Debian packages:$missing" >&2
	# Where two makes run side by side, the second waits for the first.
	# shellcheck disable=SC2086
	if ! DEBIAN_FRONTEND=noninteractive flock /var/lib/apt apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1; then
		flock /var/lib/apt apt-get update -qq || die "apt-get update failed; needed packages:$missing"
		DEBIAN_FRONTEND=noninteractive flock /var/lib/apt apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
			die "apt-get install$missing failed"
	fi
}

# need_go: a Go that can build this tree. Any Go from 1.21 on fetches the version
# that go.mod asks for by itself, unless GOTOOLCHAIN=local forbids it.
need_go() {
	command -v "${go:-go}" >/dev/null 2>&1 ||
		die "Go is not in PATH; install Go 1.26 (https://go.dev/dl, unpack to /usr/local, PATH=\$PATH:/usr/local/go/bin) and try again"
	v=$("${go:-go}" env GOVERSION 2>/dev/null) || v=
	case $v in
	go1.2[6-9]* | go1.[3-9][0-9]* | go[2-9]*) ;;
	*) die "Go 1.26 or newer is needed and ${v:-an unknown version} found; see https://go.dev/dl" ;;
	esac
}

# debian_mirror SUITE prints the address from which apt here gets Debian, that of SUITE if
# there are several.
debian_mirror() {
	uri=${PODD_DEBIAN_MIRROR:-}
	[ -n "$uri" ] || uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' "Created-By: Packages" |
		awk -v suite="$1" '
			$1 ~ /debian-security/ { next }
			$2 == suite { exact = $1 }
			$1 ~ /debian\/?$/ { debian = $1 }
			END { print exact ? exact : debian }')
	[ -n "$uri" ] || die "apt on this machine knows no Debian mirror; name one: PODD_DEBIAN_MIRROR=http://… make …"
	echo "$uri"
}
