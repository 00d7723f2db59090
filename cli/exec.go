package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/server"
)

// ExecOptions are the options of podd exec and podd attach. They are kubectl's.
type ExecOptions struct {
	StateDir, Namespace string
	// Pod is a name as given on the command line. Container is one of the pod's containers;
	// empty means the default one.
	Pod, Container string
	// Command is empty to attach to the container's own process.
	Command []string
	// Stdin and TTY are -i and -t. Quiet suppresses all output except the command's.
	Stdin, TTY, Quiet bool
}

// Streams are the standard streams of this process, or a test's.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs the command, or attaches, and returns once it has ended. If it failed, the error is
// an ExitError with the command's own code.
func (o *ExecOptions) Run(ctx context.Context, s Streams) error {
	c := newClient(o.StateDir)
	info, err := c.selectPod(ctx, o.Pod, o.Namespace)
	if err != nil {
		return err
	}
	errs := s.Err
	if o.Quiet {
		errs = io.Discard
	}
	container, err := selectContainer(info, o.Container, errs)
	if err != nil {
		return err
	}
	session := &commandSession{stdout: s.Out, stderr: s.Err}
	if o.Stdin {
		session.stdin = s.In
	}
	path, query := "/exec", url.Values{"command": o.Command}
	if len(o.Command) == 0 {
		path, query = "/attach", url.Values{}
		if err := o.prepareAttach(info.Pod, container, s.Err); err != nil {
			return err
		}
	}
	// As with kubectl, a command gets a terminal only if there is one here. When attaching, the
	// container's own process decides.
	restore, sizes, err := o.terminal(s)
	if err != nil {
		return err
	}
	defer restore()
	session.sizes = sizes
	if session.tty = sizes != nil || o.TTY && len(o.Command) == 0; session.tty {
		session.stderr = nil // a terminal has one stream
	}
	conn, err := c.open(ctx, path+sessionPath(info, container), commandProtocol, session.query(query))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if len(o.Command) == 0 && o.Stdin {
		o.printUnlessQuiet(s.Err, "If you don't see a command prompt, try pressing enter.\n")
	}
	return session.run(ctx, conn)
}

func (o *ExecOptions) printUnlessQuiet(to io.Writer, format string, args ...any) {
	if !o.Quiet {
		_, _ = fmt.Fprintf(to, format, args...)
	}
}

// selectContainer returns the requested container, or the default one. If there is a choice, it
// reports the default on errs.
func selectContainer(info server.PodInfo, name string, errs io.Writer) (string, error) {
	l := LogsOptions{Container: name}
	names, err := l.selectContainers(info, errs)
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// prepareAttach adapts the options to the container's own process, and reports the differences:
// the container decides whether there is a terminal, whatever the user asks for.
func (o *ExecOptions) prepareAttach(p *v1.Pod, container string, errs io.Writer) error {
	spec, _ := pod.ContainerSpec(&p.Spec, container)
	if spec == nil {
		return nil // podd reports that
	}
	if o.Stdin && !spec.Stdin {
		return fmt.Errorf("container %s of pod %s has no standard input (stdin: true in its manifest)", printable(container), nameOf(p))
	}
	if o.TTY && !spec.TTY {
		o.printUnlessQuiet(errs, "Unable to use a TTY - container %s did not allocate one\n", printable(container))
	}
	o.TTY = spec.TTY
	return nil
}

// terminal makes standard input raw until restore, if it is passed on and is a terminal. It
// sends the terminal's size and each change of it. Without a terminal, sizes is nil.
func (o *ExecOptions) terminal(s Streams) (restore func(), sizes <-chan terminalSize, err error) {
	if !o.Stdin || !o.TTY {
		return func() {}, nil, nil
	}
	in, ok := s.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		o.printUnlessQuiet(s.Err, "Unable to use a TTY - input is not a terminal or the right kind of file\n")
		return func() {}, nil, nil
	}
	fd := int(in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, nil, fmt.Errorf("make the terminal raw: %w", err)
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	all, ended := make(chan terminalSize, 1), make(chan struct{})
	go func() {
		defer close(all)
		for {
			if width, height, err := term.GetSize(fd); err == nil {
				select {
				case all <- terminalSize{uint16(width), uint16(height)}:
				case <-ended:
					return
				}
			}
			select {
			case <-changed:
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(ended)
		_ = term.Restore(fd, before)
	}, all, nil
}
