package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"podd/server"
)

// CopyOptions are the options of podd cp. They are kubectl's.
type CopyOptions struct {
	StateDir, Namespace string
	// From and To are files or directories: PATH on this machine, or [NAMESPACE/]POD:PATH in a
	// container. One must be of each form.
	From, To string
	// Container is one of the pod's containers; empty means the default one.
	Container string
	// NoPreserve gives files copied into a container the owner and modes of new files there.
	NoPreserve bool
	// Retries is how often podd resumes a copy from a container after its session breaks off;
	// negative means without limit.
	Retries int
}

// fileSpec is the location of a file: in a pod, or here if pod is empty.
type fileSpec struct{ pod, path string }

func parseFileSpec(text string) (fileSpec, error) {
	pod, in, remote := strings.Cut(text, ":")
	switch {
	case !remote || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "."):
		if text == "" {
			return fileSpec{}, UsageErrorf("give a path")
		}
		return fileSpec{path: text}, nil
	case pod == "" || in == "" || strings.Count(pod, "/") > 1:
		return fileSpec{}, UsageErrorf("%q: give [[NAMESPACE/]POD:]PATH, a path of this machine with a colon as ./PATH", printable(text))
	}
	return fileSpec{pod, in}, nil
}

// Run copies. It reports skipped files on errs.
func (o *CopyOptions) Run(ctx context.Context, errs io.Writer) error {
	from, err := parseFileSpec(o.From)
	if err != nil {
		return err
	}
	to, err := parseFileSpec(o.To)
	if err != nil {
		return err
	}
	if (from.pod == "") == (to.pod == "") {
		return UsageErrorf("give one path of a pod, [NAMESPACE/]POD:PATH, and one of this machine")
	}
	if to.pod != "" { // before looking for a pod
		if _, err := os.Lstat(from.path); err != nil {
			return err
		}
	}
	c := newClient(o.StateDir)
	t, err := c.target(ctx, from.pod+to.pod, o.Namespace, o.Container, errs)
	if err != nil {
		return err
	}
	if to.pod != "" {
		err = o.upload(ctx, t, from.path, to.path)
	} else {
		err = o.download(ctx, t, from.path, to.path, errs)
	}
	if isProgramMissing(err) {
		err = fmt.Errorf("%w: podd cp runs tar in the container, whose image has none", err)
	}
	return err
}

// isProgramMissing reports whether a command did not run because the container has no such
// program. The runtime's error comes over a session as text, in the words of Go's os/exec,
// which runc and crun use.
func isProgramMissing(err error) bool {
	return err != nil && strings.Contains(err.Error(), "executable file not found")
}

// target is a container to run commands in.
type target struct {
	client *client
	path   string // the sessions' path after /exec
}

// target finds a container of a pod. If there is a choice, it reports on errs which one it
// took.
func (c *client) target(ctx context.Context, podName, namespace, container string, errs io.Writer) (*target, error) {
	info, err := c.selectPod(ctx, podName, namespace)
	if err != nil {
		return nil, err
	}
	if container, err = selectContainer(info, container, errs); err != nil {
		return nil, err
	}
	return &target{c, sessionPath(info, container)}, nil
}

// sessionPath returns the path of a container's sessions, after /exec or /attach.
func sessionPath(info server.PodInfo, container string) string {
	return fmt.Sprintf("/%s/%s/%s", url.PathEscape(info.Pod.Namespace), url.PathEscape(info.Pod.Name), url.PathEscape(container))
}

// run runs a command to its end. If the command fails, the error includes its standard error.
func (t *target) run(ctx context.Context, in io.Reader, out io.Writer, words ...string) error {
	stderr := &limitedBuffer{}
	session := &commandSession{stdin: in, stdout: out, stderr: stderr, outcomeTimeout: 2 * time.Second}
	conn, err := t.client.open(ctx, "/exec"+t.path, commandProtocol, session.query(url.Values{"command": words}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	err = session.run(ctx, conn)
	text := strings.ReplaceAll(strings.TrimSpace(string(stderr.text)), "\n", "; ")
	switch exit := (*ExitError)(nil); {
	case errors.As(err, &exit):
		return &commandError{words[0], fmt.Sprintf("failed with exit code %d", exit.Code), text, true}
	case errors.Is(err, errNoOutcome):
		return &commandError{words[0], "ended before it had read everything", text, false}
	}
	return err
}

// commandError is the failure of a command that podd ran for its own purpose.
type commandError struct {
	name, how, stderr string
	exited            bool // the exit code is known
}

func (e *commandError) Error() string {
	if e.stderr == "" {
		return e.name + " in the container " + e.how
	}
	return fmt.Sprintf("%s in the container %s: %s", e.name, e.how, printable(e.stderr))
}

// limitedBuffer keeps the beginning of the text written to it.
type limitedBuffer struct{ text []byte }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), 1024-len(b.text))]...)
	return len(p), nil
}

// upload copies from this machine into a container.
func (o *CopyOptions) upload(ctx context.Context, t *target, from, to string) error {
	var failed *commandError
	switch err := t.run(ctx, nil, io.Discard, "test", "-d", to); {
	case err == nil: // copy into that directory
		name, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		to = path.Join(to, filepath.Base(name))
	case !errors.As(err, &failed):
		return err
	}
	words := []string{"tar"}
	if o.NoPreserve {
		words = append(words, "--no-same-permissions", "--no-same-owner")
	}
	words = append(words, "-xmf", "-")
	if dir := path.Dir(to); dir != "." {
		words = append(words, "-C", dir)
	}
	in, out := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(out, from, path.Base(to))
		_ = out.CloseWithError(err)
		packed <- err
	}()
	err := t.run(ctx, in, io.Discard, words...)
	_ = in.CloseWithError(io.ErrClosedPipe) // tar may end before it has read everything
	if failure := <-packed; failure != nil && !errors.Is(failure, io.ErrClosedPipe) {
		return failure
	}
	return err
}

// pack writes a file or directory into an archive under the given name.
func pack(to io.Writer, from, name string) error {
	archive := tar.NewWriter(to)
	from = filepath.Clean(from)
	if real, err := filepath.EvalSymlinks(from); err == nil {
		from = real // copy the named file, not a link to it
	}
	err := filepath.WalkDir(from, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return packOne(archive, p, path.Join(name, filepath.ToSlash(below)))
	})
	return errors.Join(err, archive.Close())
}

func packOne(archive *tar.Writer, from, name string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = os.Readlink(from); err != nil {
			return err
		}
	case info.Mode()&fs.ModeSocket != 0:
		return nil // tar cannot hold it
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = name
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err = io.CopyN(archive, f, header.Size); errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s became shorter while it was copied", from)
	}
	return err
}

// download copies from a container to this machine.
func (o *CopyOptions) download(ctx context.Context, t *target, from, to string, errs io.Writer) error {
	if info, err := os.Stat(to); err == nil && info.IsDir() && path.Base(path.Clean(from)) != "." && path.Clean(from) != "/" {
		to = filepath.Join(to, path.Base(path.Clean(from)))
	}
	if strings.HasPrefix(from, "-") {
		from = "./" + from // so that it is no option
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, out := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := o.tarWithRetries(ctx, from, out, errs, func(to io.Writer, words ...string) error { return t.run(ctx, nil, to, words...) })
		_ = out.CloseWithError(err)
		ran <- err
	}()
	u := &unpacker{prefix: strings.TrimPrefix(path.Clean(from), "/"), to: filepath.Clean(to), errs: errs}
	failure := u.unpack(in)
	if failure == nil || errors.Is(failure, errNothingSent) {
		_, _ = io.Copy(io.Discard, in) // tar's padding, until it ends
	} else {
		cancel()
	}
	_ = in.CloseWithError(io.ErrClosedPipe)
	if err, failed := <-ran, (*commandError)(nil); failure == nil || errors.As(err, &failed) {
		return err
	}
	return failure
}

const (
	// fromByte makes tar write its archive again, and passes on the part from a given byte on;
	// the first byte is 1. It fails if tar does, where the shell can do that.
	fromByte = `(set -o pipefail) 2>/dev/null && set -o pipefail; tar cf - "$1" | tail -c "+$2"`
	// retryPause is how long podd cp waits after a session that delivered nothing: podd may be
	// starting.
	retryPause = time.Second
)

// tarWithRetries makes tar in the container write an archive to a writer. If the session breaks
// off, it resumes at that point, up to Retries times, like kubectl. The archive is the same
// again only if the files have not changed. It does not retry when tar itself fails, or when
// podd refuses the request.
func (o *CopyOptions) tarWithRetries(ctx context.Context, from string, to, errs io.Writer, run func(to io.Writer, words ...string) error) error {
	counted := &counter{to: to}
	words := []string{"tar", "cf", "-", from}
	for retry := 1; ; retry++ {
		before := counted.n
		err := run(counted, words...)
		if err == nil || ctx.Err() != nil || !isSessionLost(err) || o.Retries >= 0 && retry > o.Retries {
			return err
		}
		if counted.n > 0 {
			words = []string{"sh", "-c", fromByte, "sh", from, strconv.FormatInt(counted.n+1, 10)}
		}
		_, _ = fmt.Fprintf(errs, "%v: resuming at byte %d (retry %s)\n", err, counted.n, o.ofRetries(retry))
		if counted.n > before {
			continue
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryPause):
		}
	}
}

func (o *CopyOptions) ofRetries(n int) string {
	if o.Retries < 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d of %d", n, o.Retries)
}

// isSessionLost reports whether the session failed, as opposed to the request or the command.
func isSessionLost(err error) bool {
	var failed *commandError
	var refused responseError
	return !(errors.As(err, &failed) && failed.exited) && !errors.As(err, &refused)
}

// counter counts the bytes that it has passed on.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
