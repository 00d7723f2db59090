package cli

import (
	"context"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"
)

// TestACommandThatIsEndedBeforeItsAnswerFailsQuietly: a command that was
// interrupted while the daemon did not respond once ended with a stack trace
// and the exit code of wrong usage.
func TestACommandThatIsEndedBeforeItsAnswerFailsQuietly(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "podd.sock")) // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := newClient(dir)
	for name, ask := range map[string]func(context.Context) error{
		"get": func(ctx context.Context) error {
			return c.get(ctx, "/podd/v1/pods", url.Values{}, func(decode func(any) error) error { return decode(new(any)) })
		},
		"watch": func(ctx context.Context) error {
			return c.get(ctx, "/podd/v1/pods", url.Values{"watch": {""}}, func(decode func(any) error) error { return decode(new(any)) })
		},
		"post": func(ctx context.Context) error { return c.post(ctx, "/retry", url.Values{}, new(any)) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		err := ask(ctx)
		failed, ok := errors.AsType[*ExitError](err)
		if !ok || failed.Code != 1 || failed.Error() != "" {
			t.Errorf("%s: got %v, want exit code 1 and no message", name, err)
		}
		cancel()
	}
}
