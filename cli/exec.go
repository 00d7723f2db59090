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

// ExecOptions are the options of podd exec and podd attach, kubectl's.
type ExecOptions struct {
	StateDir, Namespace string
	// Pod is a name as given on the command line, Container one of the pod's; empty is the
	// default one.
	Pod, Container string
	// Command is empty to attach to the container's own process.
	Command []string
	// Stdin and TTY are -i and -t, Quiet leaves out what is not the command's.
	Stdin, TTY, Quiet bool
}

// Streams are the standard ones of this process, or a test's.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs the command, or attaches, and returns when it has ended: with an ExitError of its
// own code if it failed.
func (o *ExecOptions) Run(ctx context.Context, s Streams) error {
	c := newClient(o.StateDir)
	info, err := c.onePod(ctx, o.Pod, o.Namespace)
	if err != nil {
		return err
	}
	told := s.Err
	if o.Quiet {
		told = io.Discard
	}
	container, err := oneContainer(info, o.Container, told)
	if err != nil {
		return err
	}
	session := &command{stdout: s.Out, stderr: s.Err}
	if o.Stdin {
		session.stdin = s.In
	}
	path, query := "/exec", url.Values{"command": o.Command}
	if len(o.Command) == 0 {
		path, query = "/attach", url.Values{}
		if err := o.attaches(info.Pod, container, s.Err); err != nil {
			return err
		}
	}
	// As with kubectl, a command has a terminal only if there is one here, while a container
	// that is attached to has what it has.
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
		o.say(s.Err, "If you don't see a command prompt, try pressing enter.\n")
	}
	return session.run(ctx, conn)
}

func (o *ExecOptions) say(to io.Writer, format string, args ...any) {
	if !o.Quiet {
		_, _ = fmt.Fprintf(to, format, args...)
	}
}

// oneContainer is the container that is asked for, or the default one, which is told on errs
// if there is a choice.
func oneContainer(info server.PodInfo, name string, errs io.Writer) (string, error) {
	l := LogsOptions{Container: name}
	names, err := l.containersOf(info, errs)
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// attaches tells what a container's own process has: the terminal is the container's,
// whatever is asked for.
func (o *ExecOptions) attaches(p *v1.Pod, container string, errs io.Writer) error {
	spec, _ := pod.ContainerSpec(&p.Spec, container)
	if spec == nil {
		return nil // podd says so
	}
	if o.Stdin && !spec.Stdin {
		return fmt.Errorf("container %s of pod %s has no standard input (stdin: true in its manifest)", printable(container), nameOf(p))
	}
	if o.TTY && !spec.TTY {
		o.say(errs, "Unable to use a TTY - container %s did not allocate one\n", printable(container))
	}
	o.TTY = spec.TTY
	return nil
}

// terminal makes standard input raw until restore, if it is passed on and is a terminal, and
// tells its size and changes of it. Without one, sizes is nil.
func (o *ExecOptions) terminal(s Streams) (restore func(), sizes <-chan size, err error) {
	if !o.Stdin || !o.TTY {
		return func() {}, nil, nil
	}
	in, ok := s.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		o.say(s.Err, "Unable to use a TTY - input is not a terminal or the right kind of file\n")
		return func() {}, nil, nil
	}
	fd := int(in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, nil, fmt.Errorf("make the terminal raw: %w", err)
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	all, ended := make(chan size, 1), make(chan struct{})
	go func() {
		defer close(all)
		for {
			if width, height, err := term.GetSize(fd); err == nil {
				select {
				case all <- size{uint16(width), uint16(height)}:
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
