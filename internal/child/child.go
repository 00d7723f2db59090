package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd as cmd.Start does. The kernel kills its process (SIGKILL) when this
// process ends, however it ends. It does not kill processes that the child starts itself.
// Start keeps the other fields of cmd.SysProcAttr. It is safe for concurrent use, but not
// for use within a bubble of testing/synctest, since the thread that it starts at first
// outlives the bubble.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	forkThread() <- func() { started <- cmd.Start() }
	return <-started
}

// Run is Start, and waits until the process ends.
func Run(cmd *exec.Cmd) error {
	if err := Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// forkThread returns a channel to a thread that never ends and runs what it receives. The
// kernel sends the signal when the thread that forked ends, not the process (prctl(2),
// PR_SET_PDEATHSIG), and Go ends a thread if its goroutine ends without having unlocked it.
var forkThread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // for good
		for do := range work {
			do()
		}
	}()
	return work
})
