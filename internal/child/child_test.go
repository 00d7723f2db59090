package child

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is the process that is killed, too.
func TestMain(m *testing.M) {
	if os.Getenv("PODD_TEST_PARENT") != "" {
		cmd := exec.Command("sleep", "1000")
		cmd.Stderr = os.Stderr
		if err := Start(cmd); err != nil {
			panic(err)
		}
		println(cmd.Process.Pid)
		select {}
	}
	os.Exit(m.Run())
}

func TestAChildEndsWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "PODD_TEST_PARENT=1")
	says, err := parent.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(says).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child does not run: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The child holds the pipe for as long as it runs.
	_, _ = io.Copy(io.Discard, says)
	_ = parent.Wait() // it was killed
}

// TestAChildOutlivesTheThreadThatAsked: threads end while their process lives on, and must
// not take children with them.
func TestAChildOutlivesTheThreadThatAsked(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan int)
	var ask func()
	ask = func() {
		runtime.LockOSThread() // for good: the thread ends with this
		if syscall.Gettid() == os.Getpid() {
			go ask() // this thread is the process' first, which Go never ends
			select {}
		}
		if err := Start(cmd); err != nil {
			t.Error(err)
		}
		asked <- syscall.Gettid()
	}
	go ask()
	tid := <-asked
	for unix.Tgkill(os.Getpid(), tid, 0) == nil {
		runtime.Gosched()
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Errorf("it did not end by itself: %v", err)
	}
}

func TestAChildThatDoesNotStart(t *testing.T) {
	if err := Run(exec.Command("/nobody")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := Run(exec.Command("sh", "-c", "exit 3")); err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %v", err)
	}
}
