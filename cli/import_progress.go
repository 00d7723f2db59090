package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"podd/images/archive"
)

// slowImport is how long an import runs before podd announces it on a terminal.
const slowImport = time.Second

// ImportProgress returns the function that reports imports of archives, and the log for them.
// On a terminal, each import gets one line with its size and duration, and the log is reduced
// to warnings. Elsewhere only the log reports imports, and the function is nil. The function is
// safe for concurrent use.
func ImportProgress(stderr *os.File, log *slog.Logger) (func(archive.Progress), *slog.Logger) {
	if !isTerminal(stderr) {
		return nil, log
	}
	return importProgress(stderr), slog.New(warningHandler{log.Handler()})
}

// importProgress writes a line at the end of each import, and one at its start if it takes
// long. Each line is one write, since others write to the same terminal.
func importProgress(w io.Writer) func(archive.Progress) {
	var mu sync.Mutex
	slow := map[string]*time.Timer{}
	return func(p archive.Progress) {
		mu.Lock()
		defer mu.Unlock()
		what := printable(filepath.Base(p.File)) + ", " + bytesOf(p.Size)
		if t := slow[p.File]; t != nil {
			t.Stop()
			delete(slow, p.File)
		}
		switch {
		case !p.Done:
			slow[p.File] = time.AfterFunc(slowImport, func() { fmt.Fprintf(w, "importing %s …\n", what) })
		case p.Err != nil:
			fmt.Fprintf(w, "not imported: %s, after %.1f s\n", what, p.Took.Seconds()) // the log says why
		default:
			fmt.Fprintf(w, "imported %s in %.1f s: %s\n", what, p.Took.Seconds(), printable(strings.Join(p.Refs, ", ")))
		}
	}
}

// bytesOf formats a size in powers of 1000.
func bytesOf(n int64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if float64(n) >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// warningHandler lets only warnings and errors through.
type warningHandler struct{ slog.Handler }

func (w warningHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}
func (w warningHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return warningHandler{w.Handler.WithAttrs(a)}
}
func (w warningHandler) WithGroup(name string) slog.Handler {
	return warningHandler{w.Handler.WithGroup(name)}
}
