package conformance

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Suite is one run of upstream's tests.
type Suite struct {
	// Ginkgo is ginkgo's command, Tests the binary of the tests, Kubectl what some tests call,
	// Kubeconfig that of an administrator, Out the directory of the results.
	Ginkgo, Tests, Kubectl, Kubeconfig, Out string
	// Root is the node's root directory, where tests have plugins register; empty for the
	// kubelet's usual one.
	Root string
	// Focus and Skip are regular expressions of tests' names.
	Focus, Skip string
	// Procs is how many tests run at once.
	Procs int
	// Expected is the file of the tests that cannot pass; one of them that does fails the
	// run. AtLeast is how many tests must run, passed or not; 0 is one.
	Expected string
	AtLeast  int
	// Flags are the tests' own in place of those of a cluster: for e2e_node, which starts the
	// node and its apiserver itself.
	Flags []string
	// Nodes is how many nodes the cluster has that take pods; 0 is one.
	Nodes int
	// Command makes the command that runs the tests, if that is not to be one of this
	// process's own network: its files are the same. Its processes are killed as a group.
	Command func(ctx context.Context, args ...string) *exec.Cmd
}

// limit is for the whole run: ginkgo's own is an hour.
const limit = 6 * time.Hour

// interrupted is how long ginkgo may take to write its report when it is told to end.
const interrupted = time.Minute

func (s *Suite) reportFile() string { return filepath.Join(s.Out, "report.json") }
func (s *Suite) outputFile() string { return filepath.Join(s.Out, "output.txt") }

// Run runs the tests and prints to out how far they are and what came of them. It
// returns an error if a test failed that can pass, or passed that cannot, and if there were
// too few.
func (s *Suite) Run(ctx context.Context, out io.Writer) error {
	expected, err := readExpected(s.Expected)
	if err != nil {
		return err
	}
	if err := os.Remove(s.reportFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	begin := time.Now()
	ran := s.ginkgo(ctx, out)
	took := time.Since(begin)
	specs, err := readReport(s.reportFile())
	if err != nil {
		return errors.Join(ran, fmt.Errorf("the tests ended without a report (see %s): %w", s.outputFile(), err))
	}
	result := judge(specs, expected)
	result.took, result.atLeast = took, s.AtLeast
	result.print(out)
	text, err := os.Create(filepath.Join(s.Out, "results.txt"))
	if err != nil {
		return err
	}
	result.print(text)
	return errors.Join(text.Close(), result.err())
}

// link gives the tests' binary the name by which ginkgo knows that it is built already.
func (s *Suite) link() (string, error) {
	path := filepath.Join(s.Out, "e2e.test")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return path, os.Symlink(s.Tests, path)
}

func (s *Suite) command(ctx context.Context, args ...string) *exec.Cmd {
	if s.Command != nil {
		return s.Command(ctx, args...)
	}
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

func (s *Suite) flags() []string {
	if s.Flags != nil {
		return s.Flags
	}
	return []string{
		"--kubeconfig=" + s.Kubeconfig, "--kubectl-path=" + s.Kubectl, "--kubelet-root-dir=" + cmp.Or(s.Root, "/var/lib/kubelet"),
		"--provider=skeleton", "--num-nodes=" + strconv.Itoa(max(1, s.Nodes)), "--node-os-distro=debian",
	}
}

// ginkgo runs the tests; its error says nothing about them, only about the run.
func (s *Suite) ginkgo(ctx context.Context, out io.Writer) error {
	tests, err := s.link()
	if err != nil {
		return err
	}
	output, err := os.Create(s.outputFile())
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	// The directory is that of files which tests write to where they are.
	cmd := s.command(ctx, "env", "--chdir="+s.Out, s.Ginkgo,
		"--procs="+strconv.Itoa(s.Procs), "--timeout="+limit.String(), "--no-color", "--silence-skips", "-v", "--keep-going",
		"--focus="+s.Focus, "--skip="+s.Skip, "--json-report="+filepath.Base(s.reportFile()), "--output-dir="+s.Out, tests, "--", "--report-dir="+s.Out)
	cmd.Args = append(cmd.Args, s.flags()...)
	// Ctrl-C is passed on to all of them: ginkgo does not tell its processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGINT) }
	cmd.WaitDelay = interrupted
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	told := make(chan struct{})
	go func() {
		defer close(told)
		progress := &progress{out: out}
		lines := bufio.NewScanner(io.TeeReader(read, output))
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			progress.line(lines.Text())
		}
		_, _ = io.Copy(output, read) // after a line that is longer than that
	}()
	err = cmd.Run()
	if cmd.Process != nil {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // who outlived it
	}
	_ = write.Close()
	<-told
	if _, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return nil // tests failed, or there are none: the report tells
	}
	return err
}
