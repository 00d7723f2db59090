package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"podd/internal/versions"
)

func TestWhatTheApiserversVersionMeans(t *testing.T) {
	for _, c := range []struct {
		server  version.Info
		want    string
		outside bool
	}{
		{version.Info{Major: "1", Minor: "37"}, "1.37, like podd", false},
		{version.Info{Major: "1", Minor: "37+"}, "1.37, like podd", false},
		{version.Info{Major: "1", Minor: "36"}, "1.36, older than this podd (1.37)", true},
		{version.Info{Major: "1", Minor: "9"}, "1.9, older", true},
		{version.Info{Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "36"}, "1.36, older", true},
		{version.Info{Major: "1", Minor: "38"}, "1.38, newer than this podd (1.37). podd ignores fields", false},
		{version.Info{Major: "1", Minor: "40"}, "1.40, newer", false},
		{version.Info{Major: "1", Minor: "41"}, "1.41, more than 3 minor versions newer", true},
		{version.Info{Major: "2", Minor: "0"}, "does not say", false},
		{version.Info{}, "does not say", false},
		{version.Info{Major: "1", Minor: "x\n"}, "does not say", false},
		{version.Info{Major: "1", Minor: strings.Repeat("9", 100)}, "does not say", false},
		{version.Info{Major: "-1", Minor: "36"}, "does not say", false},
	} {
		if got, outside := compareVersions("1.37", &c.server); !strings.Contains(got, c.want) || outside != c.outside || len(got) > 300 {
			t.Errorf("%+v: got %q, %v, want %q, %v", c.server, got, outside, c.want, c.outside)
		}
	}
	if got, outside := compareVersions(versions.KubernetesMinor, &version.Info{Major: "1", Minor: strings.TrimPrefix(versions.KubernetesMinor, "1.")}); outside || !strings.Contains(got, "like podd") {
		t.Errorf("podd's own version: got %q, %v", got, outside)
	}
}

func TestTheApiserverIsAskedForItsVersionUntilItAnswers(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{}, "version", errors.New("no"))
	for what, c := range map[string]struct {
		answers []error
		level   string
		note    string
	}{
		"at once":           {[]error{nil}, "WARN", "1.2, older"},
		"after an outage":   {[]error{errors.New("away"), errors.New("away"), nil}, "WARN", "1.2, older"},
		"never: it refuses": {[]error{refused}, "INFO", "does not say"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			asked := 0
			v := &apiserverVersion{log: slog.New(slog.NewTextHandler(&log, nil)), ask: func(context.Context) (*version.Info, error) {
				asked++
				return &version.Info{Major: "1", Minor: "2"}, c.answers[asked-1]
			}}
			if got := v.current(); !strings.Contains(got, "not reported its version yet") {
				t.Errorf("%s: before the answer: got %q", what, got)
			}
			if err := v.run(t.Context()); err != nil || asked != len(c.answers) {
				t.Errorf("%s: got %v after %d requests", what, err, asked)
			}
			if got := log.String(); !strings.Contains(v.current(), c.note) || strings.Count(got, "\n") != 1 || !strings.Contains(got, "level="+c.level) || !strings.Contains(got, c.note) {
				t.Errorf("%s: got %q, and in the log %s", what, v.current(), got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		asked := 0
		v := &apiserverVersion{log: slog.New(slog.DiscardHandler), ask: func(context.Context) (*version.Info, error) { asked++; return nil, errors.New("away") }}
		if err := v.run(ctx); err == nil || asked > 70 {
			t.Errorf("an hour without an apiserver: got %v after %d requests", err, asked)
		}
	})
}
