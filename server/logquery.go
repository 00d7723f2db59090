package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
)

// The bounds of a log query. They are upstream's except for maxPattern and parallelQueries.
const (
	maxQueryLines    = 100_000
	maxServiceName   = 256
	maxQueryServices = 4
	maxPattern       = 1024
	queryTimeout     = 30 * time.Second
	parallelQueries  = 4
)

// logQuery is a request for the logs of services, or for one file of the log directory.
type logQuery struct {
	services, files []string
	since, until    time.Time
	lines, boot     *int
	pattern         string
}

// unsafeService matches characters that no service name contains. The name becomes an argument
// of a program.
var unsafeService = regexp.MustCompile(`[^a-zA-Z\-_.:0-9@]`)

// parseLogQuery returns nil if a request has none of the parameters.
func parseLogQuery(values url.Values) (*logQuery, error) {
	q := &logQuery{pattern: values.Get("pattern")}
	asked := q.pattern != ""
	if all, ok := values["query"]; ok {
		asked = true
		for _, each := range all {
			switch {
			case strings.ContainsAny(each, `/\`):
				q.files = append(q.files, each)
			case strings.TrimSpace(each) != "":
				q.services = append(q.services, each)
			}
		}
		if len(q.files)+len(q.services) == 0 {
			return nil, fmt.Errorf("query: Invalid value: %q: may not be empty", all)
		}
	}
	var errs []error
	for name, to := range map[string]*time.Time{"sinceTime": &q.since, "untilTime": &q.until} {
		if text := values.Get(name); text != "" {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: Invalid value: %q: invalid time format", name, text))
			}
			*to, asked = at, true
		}
	}
	for name, to := range map[string]**int{"tailLines": &q.lines, "boot": &q.boot} {
		if text := values.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: Invalid value: %q: not a number", name, text))
			}
			*to, asked = &n, true
		}
	}
	if err := errors.Join(errs...); err != nil || !asked {
		return nil, err
	}
	return q, nil
}

// hasOptions reports whether a query asks for only a part of the journal.
func (q *logQuery) hasOptions() bool {
	return !q.since.IsZero() || !q.until.IsZero() || q.lines != nil || q.boot != nil || q.pattern != ""
}

// check is upstream's validation. root holds the log files.
func (q *logQuery) check(root *os.Root) error {
	switch {
	case len(q.files)+len(q.services) == 0:
		return errors.New("query: Required value: cannot be empty with options")
	case len(q.files) > 0 && len(q.services) > 0:
		return fmt.Errorf("query: Invalid value: %q: cannot specify a file and service", append(q.files, q.services...))
	case len(q.files) > 1:
		return fmt.Errorf("query: Invalid value: %q: cannot specify more than one file", q.files)
	case len(q.files) == 1 && q.hasOptions():
		return fmt.Errorf("query: Invalid value: %q: cannot specify file with options", q.files)
	case len(q.files) == 1:
		if _, err := root.Stat(strings.TrimPrefix(strings.ReplaceAll(q.files[0], `\`, "/"), "/")); err != nil {
			return fmt.Errorf("query: Invalid value: %q: no such file in the log directory", q.files)
		}
	case len(q.services) > maxQueryServices:
		return fmt.Errorf("query: Too many: %d: must have at most %d items", len(q.services), maxQueryServices)
	}
	for _, service := range q.services {
		if len(service) > maxServiceName {
			return fmt.Errorf("query: Invalid value: length must be less than %d", maxServiceName)
		}
		if unsafeService.MatchString(service) {
			return fmt.Errorf("query: Invalid value: %q: input contains unsupported characters", service)
		}
	}
	return q.checkOptions()
}

func (q *logQuery) checkOptions() error {
	switch {
	case !q.since.IsZero() && !q.until.IsZero() && q.since.After(q.until):
		return errors.New("untilTime: Invalid value: must be after `sinceTime`")
	case q.boot != nil && *q.boot > 0:
		return fmt.Errorf("boot: Invalid value: %d: must be less than 1", *q.boot)
	case q.lines != nil && (*q.lines < 0 || *q.lines > maxQueryLines):
		return fmt.Errorf("tailLines: Invalid value: %d: must be between 0 and %d, inclusive", *q.lines, maxQueryLines)
	case len(q.pattern) > maxPattern:
		return fmt.Errorf("pattern: Invalid value: must be no longer than %d bytes", maxPattern)
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		return fmt.Errorf("pattern: Invalid value: %q: %w", q.pattern, err)
	}
	return nil
}

// arguments returns journalctl's arguments. Each value is part of an argument that begins with
// an option's name, and no argument passes through a shell.
func (q *logQuery) arguments(services []string) []string {
	const layout = "2006-01-02 15:04:05 UTC"
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.since.IsZero() {
		args = append(args, "--since="+q.since.UTC().Format(layout))
	}
	if !q.until.IsZero() {
		args = append(args, "--until="+q.until.UTC().Format(layout))
	}
	if q.lines != nil {
		args = append(args, fmt.Sprintf("--lines=%d", *q.lines))
	}
	for _, service := range services {
		args = append(args, "--unit="+service)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, fmt.Sprintf("--boot=%d", *q.boot))
	}
	return args
}

// queryLogs writes the logs of services: from the journal, or from the service's file in the
// log directory. An error after the response has begun becomes a line of the response.
func (s *Server) queryLogs(w http.ResponseWriter, r *http.Request, q *logQuery, root *os.Root) {
	select {
	case s.queries <- struct{}{}:
		defer func() { <-s.queries }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("%d log queries are being answered: try again", parallelQueries), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := &deadlineWriter{ResponseWriter: w, s: s}
	journal, others := q.split(ctx)
	if len(journal) > 0 {
		if err := runInto(ctx, out, "journalctl", q.arguments(journal)...); err != nil {
			fmt.Fprintf(out, "\nerror: journal output not available\n")
		}
	}
	if len(others) > 0 && q.hasOptions() {
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", others)
		return
	}
	for _, service := range others {
		copyServiceFile(ctx, out, root, service)
	}
}

// split separates the services that have journal entries from the others.
func (q *logQuery) split(ctx context.Context) (journal, others []string) {
	units := map[string]bool{}
	pipe, w := io.Pipe()
	go func() { _ = w.CloseWithError(runInto(ctx, w, "journalctl", "--field", "_SYSTEMD_UNIT")) }()
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		units[lines.Text()] = true
	}
	_ = pipe.Close()
	for _, service := range q.services {
		if units[service] || units[service+".service"] {
			journal = append(journal, service)
		} else {
			others = append(others, service)
		}
	}
	return journal, others
}

// runInto runs a program and sends its output to w. A program that fails reports that in its
// own output.
func runInto(ctx context.Context, w io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, w, time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// copyServiceFile writes /var/log/SERVICE, SERVICE.log or SERVICE/SERVICE.log.
func copyServiceFile(ctx context.Context, w io.Writer, root *os.Root, service string) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		f, err := plainFiles{root}.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			fmt.Fprintf(w, "\nerror getting log for %s: %v\n", service, err)
			return
		}
		info, err := f.Stat()
		if err == nil && !info.IsDir() {
			_, _ = io.Copy(w, reader(func(p []byte) (int, error) {
				if err := ctx.Err(); err != nil {
					return 0, err
				}
				return f.Read(p)
			}))
		}
		_ = f.Close()
		if err == nil && !info.IsDir() {
			return
		}
	}
	fmt.Fprintf(w, "\nlog not found for %s\n", service)
}

type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
