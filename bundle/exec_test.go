package bundle

import (
	"slices"
	"testing"
)

func TestTheRuntimeGetsOnlyTheVariablesThatTheDocsName(t *testing.T) {
	env := []string{
		"HTTP_PROXY=a", "HTTPS_PROXY=b", "NO_PROXY=c", "http_proxy=d", "https_proxy=e", "no_proxy=f", "SSL_CERT_FILE=g", "SSL_CERT_DIR=h",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=/home/me/tmp", "XDG_RUNTIME_DIR=/run/user/0", "GODEBUG=x",
		"LD_PRELOAD=y.so", "HOME=/home/me", "HTTP_PROXY_OLD=z", "WATCHDOG_USEC=1", "CONTAINERD_NAMESPACE=n", "nonsense",
	}
	want := append(slices.Clone(env[:8]), "PATH=/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=/run/podd/tmp")
	if got := (&Settings{BinDir: "/opt/bin", StateDir: "/run/podd"}).Env(env); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
