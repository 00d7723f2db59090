package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd as cmd.Start does. The kernel kills its process (SIGKILL) when this
// process ends, however that ends. Processes that it starts itself are not killed with it.
// Other fields of cmd.SysProcAttr are kept. Safe for concurrent use; not for use within a
// bubble of testing/synctest, since what it starts first outlives the bubble.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	parent() <- func() { started <- cmd.Start() }
	return <-started
}

// Run is Start, and waits for the end.
func Run(cmd *exec.Cmd) error {
	if err := Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// parent returns where a thread that never ends takes what it is to do. The kernel sends the
// signal when the thread that forked ends, not the process (prctl(2), PR_SET_PDEATHSIG), and
// Go ends a thread whose goroutine ends without having unlocked it.
var parent = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // for good
		for do := range work {
			do()
		}
	}()
	return work
})
