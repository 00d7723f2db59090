package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"podd/internal/versions"
)

// TestANodeThatIsNewerThanItsApiserverWorksAndSaysSo: an apiserver that emulates the minor
// version before podd's serves what that one did, and tells it in /version.
func TestANodeThatIsNewerThanItsApiserverWorksAndSaysSo(t *testing.T) {
	minor, err := strconv.Atoi(strings.TrimPrefix(versions.KubernetesMinor, "1."))
	if err != nil {
		t.Fatal(err)
	}
	older := fmt.Sprintf("1.%d", minor-1)
	m := join(t, "--emulated-version="+older)
	m.eventually("/readyz says what the apiserver's version means", func(ctx context.Context) error {
		body, err := m.podd.Get(ctx, "/readyz?verbose")
		if want := "[+]apiserver-version ok: the apiserver is Kubernetes " + older + ", older than this podd (" + versions.KubernetesMinor + ")"; err != nil || !strings.Contains(string(body), want) {
			return fmt.Errorf("got %s (%v), want %q", body, err, want)
		}
		return nil
	})
	m.bind(m.resting("web"))
	m.shown("web", "ready", isReady)
	m.delete("web")
	m.gone("web")
	if log := m.podd.LogTail(1 << 20); strings.Count(log, "version of the apiserver: ") != 1 || !strings.Contains(log, "older than this podd") {
		t.Error("podd's log does not say it once")
	}
}
