package volumes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// fakeNFSServer is an NFS server that answers or not, and what was asked of and aborted on it.
type fakeNFSServer struct {
	t *testing.T

	mu      sync.Mutex // guards what follows
	silent  bool
	pending []chan error
	asked   int
	aborts  []time.Time
	points  map[string]bool // where something was asked or aborted
	told    []string
}

// withFakeNFSServer mounts an NFS volume for pod 1 that has the fake server, as far as
// AbortRequests sees it.
func withFakeNFSServer(t *testing.T, m *Mounter) (f *fakeNFSServer, point string) {
	t.Helper()
	mustSetUp(t, m, aPod("1", empty("e")))
	export := tempDir(t)
	point = mkdir(t, m.dirs.Volume("1", nfsPlugin, "share"))
	if err := unix.Mount(export, point, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	f = &fakeNFSServer{t: t, points: map[string]bool{}}
	m.probeServer = f.ask
	m.unmounter.call = func(point string, flags int) error {
		if flags != unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW {
			return unix.Unmount(point, flags)
		}
		f.abort(point)
		return unix.EBUSY
	}
	return f, point
}

func (f *fakeNFSServer) ask(point string) <-chan error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[point] = true
	f.asked++
	answer := make(chan error, 1)
	if f.silent {
		f.pending = append(f.pending, answer)
	} else {
		answer <- nil
	}
	if len(f.pending) > 1 {
		f.t.Errorf("%d questions wait for an answer", len(f.pending))
	}
	return answer
}

func (f *fakeNFSServer) abort(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[point] = true
	f.aborts = append(f.aborts, time.Now())
	f.endLocked(errAborted)
}

// turn has the server fall silent, or answer what it was asked.
func (f *fakeNFSServer) turn(silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = silent
	if !silent {
		f.endLocked(nil)
	}
}

func (f *fakeNFSServer) endLocked(err error) {
	for _, answer := range f.pending {
		answer <- err
	}
	f.pending = nil
}

func (f *fakeNFSServer) tell(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, why)
}

// mustHave checks how often requests were aborted since the last look, and how often
// that was told in all.
func (f *fakeNFSServer) mustHave(aborts, told int) {
	f.t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.aborts) != aborts || len(f.told) != told {
		f.t.Errorf("got aborts at %v, want %d; told %q, want %d", f.aborts, aborts, f.told, told)
	}
	f.aborts = nil
}

// aborting runs AbortRequests for pod 1 until stop is called.
func (f *fakeNFSServer) aborting(m *Mounter) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.AbortRequests(ctx, "1", f.tell)
	}()
	return func() { cancel(); <-done }
}

func TestRequestsAreAbortedOnlyWhileTheServerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounter(t)
		f, point := withFakeNFSServer(t, m)
		stop := f.aborting(m)
		time.Sleep(time.Hour)
		f.mustHave(0, 0)
		if f.asked < 300 || f.asked > 400 {
			t.Errorf("asked %d times in an hour", f.asked)
		}

		f.turn(true)
		time.Sleep(probePeriod + probeTimeout - time.Second) // it was asked just before
		f.mustHave(0, 0)
		time.Sleep(2 * time.Second)
		f.mustHave(1, 1)
		mustSay(t, errors.New(f.told[0]), `the server of NFS volume "share" (`, `) does not respond: the requests that wait for it are aborted, and data that was not written yet is lost`)
		time.Sleep(time.Minute)
		f.mustHave(30, 1) // again and again: a process makes one request after the other

		f.turn(false)
		time.Sleep(time.Minute)
		f.mustHave(0, 1)
		f.turn(true)
		time.Sleep(probePeriod + probeTimeout + time.Second)
		if f.mustHave(1, 1); len(f.points) != 1 || !f.points[point] {
			t.Errorf("got requests to %v, want %s", f.points, point)
		}
		stop()
		f.mustHave(1, 1) // its own last probe
		if len(f.pending) != 0 {
			t.Error("a question is left waiting for the server")
		}
	})
}

// Whoever aborts the requests of one mount aborts those of all mounts of the server, and
// the probes with them: that is no answer.
func TestAQuestionThatSomebodyElseAbortedIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounter(t)
		f, point := withFakeNFSServer(t, m)
		f.turn(true)
		defer f.aborting(m)()
		for range 4 {
			time.Sleep(probeTimeout / 5)
			f.abort(point)
			f.mustHave(1, 0)
		}
		time.Sleep(probeTimeout/5 + time.Second)
		f.mustHave(1, 1)
	})
}

// As by a SIGSTOP: the wait is over, and no answer could be heard.
func TestAServerIsNotDeadBecausePoddStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounter(t)
		f, _ := withFakeNFSServer(t, m)
		m.probeServer = func(string) <-chan error {
			answer := make(chan error, 1)
			time.Sleep(time.Minute) // in the loop
			time.AfterFunc(time.Second, func() { answer <- nil })
			return answer
		}
		defer f.aborting(m)()
		time.Sleep(time.Hour)
		f.mustHave(0, 0)
	})
}

// A server that fails is not one that does not respond.
func TestAnErrorIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounter(t)
		f, _ := withFakeNFSServer(t, m)
		m.probeServer = func(point string) <-chan error {
			answer := make(chan error, 1)
			answer <- unix.ESTALE
			return answer
		}
		defer f.aborting(m)()
		time.Sleep(time.Hour)
		f.mustHave(0, 0)
	})
}

func TestNoRequestsAreAbortedOfWhatPoddHasNotMountedItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounter(t)
		f, point := withFakeNFSServer(t, m)
		if err := unix.Unmount(point, 0); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{m.dirs.Volume("1", "kubernetes.io/csi", "driver"), m.dirs.Volume("1", localPlugin, "disk"), m.dirs.Volume("2", nfsPlugin, "others")} {
			if err := unix.Mount(tempDir(t), mkdir(t, dir), "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
		}
		f.turn(true)
		defer f.aborting(m)()
		time.Sleep(time.Minute)
		if f.mustHave(0, 0); f.asked != 0 {
			t.Errorf("asked %v", f.points)
		}
	})
}

// Two containers of a pod may wait for a server: when one has ended, the other goes on.
func TestRequestsOfOneMountAreAbortedByOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounter(t)
		f, _ := withFakeNFSServer(t, m)
		f.turn(true)
		first := f.aborting(m)
		time.Sleep(time.Second)
		second, third := f.aborting(m), f.aborting(m)
		time.Sleep(probeTimeout)
		f.mustHave(1, 1)
		second()
		first()
		f.mustHave(1, 1)
		time.Sleep(probeTimeout + time.Second)
		f.mustHave(1, 2)
		third()
	})
}

func TestAPodIsTornDownWhenAbortsHaveEndedOrPatienceHas(t *testing.T) {
	for _, tc := range []struct{ aborts, want time.Duration }{{hangTimeout / 2, hangTimeout / 2}, {2 * hangTimeout, hangTimeout}} {
		synctest.Test(t, func(t *testing.T) {
			m := newMounter(t)
			f, _ := withFakeNFSServer(t, m)
			stop := f.aborting(m)
			synctest.Wait()
			time.AfterFunc(tc.aborts, stop)
			began := time.Now()
			mustTearDown(t, m, "1")
			if took := time.Since(began); took != tc.want {
				t.Errorf("with aborts for %v it took %v, want %v", tc.aborts, took, tc.want)
			}
			mustBeGone(t, m, "1")
			stop()
		})
	}
}

// mustBeSilent gives an answer some time to come, in vain.
func mustBeSilent(t *testing.T, answer <-chan error) {
	t.Helper()
	select {
	case err := <-answer:
		t.Fatalf("a dead server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
}

// On the running kernel, with FUSE, since NFS needs a server.
func TestRequestsToADeadServerAreAbortedAndItsMountStays(t *testing.T) {
	path, _ := deadMount(t)
	m := newMounter(t)
	answer := m.probeServer(path)
	mustBeSilent(t, answer)
	if err := m.unmounter.abort(t.Context(), path); err != nil {
		t.Errorf("abort: %v", err)
	}
	if err := <-answer; err == nil {
		t.Error("the question was answered")
	}
	if mountOf(t, path) == nil {
		t.Error("it is no longer mounted")
	}
}

func TestAQuestionToADeadServerDoesNotKeepItsMountBusy(t *testing.T) {
	path, end := deadMount(t)
	m := newMounter(t)
	other := mkdir(t, tempDir(t)+"/other")
	if err := unix.Mount(path, other, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	answer := m.probeServer(other)
	mustBeSilent(t, answer)
	if err := unix.Unmount(other, 0); err != nil {
		t.Errorf("unmount: %v", err)
	}
	end()
	<-answer
}
