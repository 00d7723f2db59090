package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"

	"podd/internal/versions"
	"podd/internal/wake"
)

// maxNodeSkew is how many minor versions a node may be older than its apiserver. It may not be
// newer (https://kubernetes.io/releases/version-skew-policy).
const maxNodeSkew = 3

// apiserverVersion asks the apiserver for its version once, and explains what the difference
// to podd's means.
type apiserverVersion struct {
	ask func(context.Context) (*version.Info, error)
	log *slog.Logger

	mu   sync.Mutex
	note string // "" until the apiserver has answered
}

// current returns what an operator should know about the apiserver's version.
func (v *apiserverVersion) current() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return cmp.Or(v.note, "the apiserver has not reported its version yet")
}

// versionRetry is the time between attempts while the apiserver does not answer.
var versionRetry = wake.Backoff{Initial: time.Second, Max: time.Minute}

// run asks until the apiserver reports its version or refuses to.
func (v *apiserverVersion) run(ctx context.Context) error {
	for delay := time.Duration(0); ctx.Err() == nil; {
		info, err := v.ask(ctx)
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			v.learned(info, err)
			return nil
		}
		v.log.Debug("cannot ask for the apiserver's version: trying again", "error", err)
		delay = versionRetry.Next(delay)
		wake.Sleep(ctx, delay)
	}
	return ctx.Err()
}

func (v *apiserverVersion) learned(info *version.Info, err error) {
	if err != nil {
		info = &version.Info{}
	}
	note, outside := compareVersions(versions.KubernetesMinor, info)
	v.mu.Lock()
	v.note = note
	v.mu.Unlock()
	level := slog.LevelInfo
	if outside {
		level = slog.LevelWarn
	}
	v.log.Log(context.Background(), level, "version of the apiserver: "+note)
}

// compareVersions compares podd's minor version, such as "1.37", with the apiserver's. outside
// says that upstream's policy does not support the pair.
func compareVersions(own string, server *version.Info) (note string, outside bool) {
	// An apiserver that emulates an older version serves that version's API.
	major, err := strconv.ParseUint(cmp.Or(server.EmulationMajor, server.Major), 10, 16)
	minor, minorErr := strconv.ParseUint(strings.TrimSuffix(cmp.Or(server.EmulationMinor, server.Minor), "+"), 10, 16) // clouds write "36+"
	ownMajor, ownMinor, ok := parseMinor(own)
	if err != nil || minorErr != nil || !ok || int(major) != ownMajor {
		return "the apiserver does not say which Kubernetes 1.x it is; podd is built for Kubernetes " + own, false
	}
	theirs, newer := fmt.Sprintf("%d.%d", major, minor), int(minor)-ownMinor
	switch {
	case newer < 0:
		return fmt.Sprintf("the apiserver is Kubernetes %s, older than this podd (%s). Kubernetes does not support a node that is newer than its apiserver. "+
			"Pods run, but features that Kubernetes added after %s do not work: upgrade the apiserver first", theirs, own, theirs), true
	case newer > maxNodeSkew:
		return fmt.Sprintf("the apiserver is Kubernetes %s, more than %d minor versions newer than this podd (%s), which Kubernetes does not support. "+
			"podd ignores fields of pods that it does not know: upgrade podd", theirs, maxNodeSkew, own), true
	case newer > 0:
		return fmt.Sprintf("the apiserver is Kubernetes %s, newer than this podd (%s). podd ignores fields of pods that it does not know", theirs, own), false
	}
	return "the apiserver is Kubernetes " + theirs + ", like podd", false
}

func parseMinor(s string) (major, minor int, ok bool) {
	n, err := fmt.Sscanf(s, "%d.%d", &major, &minor)
	return major, minor, n == 2 && err == nil
}
