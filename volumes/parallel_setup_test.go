package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestAVolumeThatHangsDoesNotBlockOthersOfItsPod(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("dead", true)
		p := aPod("u1", share("n", "dead"), empty("e"), share("q", "quick"), host("h", "/", v1.HostPathDirectory))
		mustSay(t, errors.New(mustWait(t, m, p).Message), `being set up: [n], waiting for volume "n" since`)
		for _, dir := range []string{"kubernetes.io~empty-dir/e", "test~slow/q"} {
			if _, err := os.Stat(m.PodDir("u1") + "/volumes/" + dir); err != nil {
				t.Error(err)
			}
		}
		release()
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 1)
		mustBeReady(t, m, p)
		mustTearDown(t, m, "u1")
		mustBeGone(t, m, "u1")
	})
}

func TestVolumesThatMayBlockAreSetUpInParallel(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		s.takes = ensureWait / 2
		began := time.Now()
		mustBeReady(t, m, aPod("u1", share("a", "nas"), empty("e"), share("b", "nas"), share("c", "nas"), share("d", "nas")))
		if took := time.Since(began); took != s.takes {
			t.Errorf("it took %v, want %v", took, s.takes)
		}
	})
}

// It is retried by each Ensure, and not otherwise.
func TestAVolumeThatFailsIsReportedAndRetriedWhileAnotherHangs(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		release := s.hang("dead", false)
		s.breaks(map[string]error{"full": errors.New("no space"), "gone": errors.New("no such share")})
		p := aPod("u1", share("z", "full"), share("n", "dead"), host("h", "/nowhere", v1.HostPathDirectory), share("a", "gone"))
		for i := range 3 {
			began := time.Now()
			_, err := m.Ensure(t.Context(), p)
			want := `MountVolume.SetUp failed for volume "z" : no space` + "\n" +
				`MountVolume.SetUp failed for volume "h" : hostPath type check failed, /nowhere is not a directory, unable to determine its type: path "/nowhere" does not exist` + "\n" +
				`MountVolume.SetUp failed for volume "a" : no such share`
			if err == nil || err.Error() != want || pod.ReasonOf(err, "") != "FailedMount" {
				t.Errorf("got %v, want in the pod's order\n%s", err, want)
			}
			if took := time.Since(began); i > 0 && took != 0 {
				t.Errorf("Ensure took %v for what fails at once", took)
			}
			time.Sleep(time.Minute / 2)
		}
		s.mustHaveWoken(t, "u1", 0) // it has been told of all failures
		s.breaks(nil)
		if _, err := m.Ensure(t.Context(), p); err == nil {
			t.Error("the hostPath was set up without a retry")
		}
		p.Spec.Volumes[2].HostPath.Path = "/"
		mustSay(t, errors.New(mustWait(t, m, p).Message), `being set up: [n], waiting for volume "n" since 00:00:00`)
		release()
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 1)
		mustBeReady(t, m, p)
	})
}

func TestAFailureWhileOthersAreInProgressWakesThePodOnce(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		first, second := s.hang("one", false), s.hang("two", false)
		s.breaks(map[string]error{"one": errors.New("no such share")})
		p := aPod("u1", share("a", "one"), share("b", "two"))
		mustWait(t, m, p)
		first()
		time.Sleep(2 * ensureWait)
		s.mustHaveWoken(t, "u1", 1)
		_, err := m.Ensure(t.Context(), p)
		mustSay(t, err, `volume "a" : no such share`)
		_, err = m.Ensure(t.Context(), p) // retries
		mustSay(t, err, `volume "a" : no such share`)
		time.Sleep(time.Minute)
		s.mustHaveWoken(t, "u1", 1)
		second()
		synctest.Wait()
		s.mustHaveWoken(t, "u1", 2)
		_, err = m.Ensure(t.Context(), p)
		mustSay(t, err, `volume "a" : no such share`)
		s.breaks(nil)
		mustBeReady(t, m, p)
	})
}

// Volumes that cannot block need no slot, and the teardown of the pod does not wait for
// any.
func TestTheVolumesOfAPodInProgressAreBounded(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		s.hang("dead", false)
		volumes := []v1.Volume{}
		for i := range 3 * parallelVolumes {
			volumes = append(volumes, share(fmt.Sprint("n", i), "dead"))
		}
		p := aPod("u1", append(volumes, empty("e"))...)
		mustWait(t, m, p)
		if most, _ := s.inProgress(); most != parallelVolumes {
			t.Errorf("%d volumes in progress at a time, want %d", most, parallelVolumes)
		}
		if _, err := os.Stat(m.PodDir("u1") + "/volumes/kubernetes.io~empty-dir/e"); err != nil {
			t.Error(err)
		}
		began := time.Now()
		mustTearDown(t, m, "u1")
		if took := time.Since(began); took != 0 {
			t.Errorf("the teardown took %v", took)
		}
		mustBeGone(t, m, "u1")
		synctest.Wait()
		most, now := s.inProgress()
		if m.count(hasSetUp)+len(m.lockHolders)+m.locks.Len() > 0 || now != 0 || most != parallelVolumes {
			t.Errorf("state is left: %v %v %v, %d in progress", m.pods, m.lockHolders, m.locks.Len(), now)
		}
	})
}

// TestVolumesThatHangGiveTheirPlacesUp: however many do, the others are set up, failures
// are told and tried again, and however often the pod tries, each is at work once.
func TestVolumesThatHangGiveTheirPlacesUp(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		const hung = 3*parallelVolumes + 1
		release := s.hang("dead", true)
		defer release()
		s.breaks(map[string]error{"full": errors.New("no space")})
		volumes := []v1.Volume{}
		for i := range hung {
			volumes = append(volumes, share(fmt.Sprint("n", i), "dead"))
		}
		p := aPod("u1", append(volumes, share("q", "quick"), share("f", "full"))...)
		_, _ = m.Ensure(t.Context(), p) // whose turn comes first, is open
		time.Sleep(hung / parallelVolumes * longSetUp)
		for range 100 {
			_, err := m.Ensure(t.Context(), p)
			mustSay(t, err, `volume "f" : no space`)
			time.Sleep(time.Second)
		}
		if !exists(m.PodDir("u1") + "/volumes/test~slow/q") {
			t.Error("a volume whose server answers is not set up")
		}
		if most, now := s.inProgress(); now != hung || most > hung+2 {
			t.Errorf("%d volumes at work, and %d at a time, want each of %d once", now, most, hung)
		}
		s.breaks(nil)
		release()
		synctest.Wait()
		_, err := m.Ensure(t.Context(), p) // how it has ended
		mustSay(t, err, `volume "f" : no space`)
		mustBeReady(t, m, p)
		mustTearDown(t, m, "u1")
		mustBeGone(t, m, "u1")
	})
}

// However many volumes of however many pods hang, the process has threads left; volumes
// that cannot block are set up, and the rest follow when the server is back.
func TestVolumesThatHangAreBoundedOnTheNode(t *testing.T) {
	withSlow(t, func(t *testing.T, m *Mounter, s *slow) {
		const threads = 11
		m.threads = make(chan struct{}, threads)
		release := s.hang("dead", true)
		defer release()
		var pods []*v1.Pod
		for i := range 3 {
			var volumes []v1.Volume
			for j := range 2 * parallelVolumes {
				volumes = append(volumes, share(fmt.Sprint("n", j), "dead"))
			}
			p := aPod(fmt.Sprint("u", i), append(volumes, empty("e"))...)
			pods = append(pods, p)
			mustWait(t, m, p)
		}
		time.Sleep(time.Minute)
		if most, now := s.inProgress(); most != threads || now != threads {
			t.Errorf("%d volumes in progress, %d at a time, want %d", now, most, threads)
		}
		for _, p := range pods {
			if !exists(m.PodDir(p.UID) + "/volumes/kubernetes.io~empty-dir/e") {
				t.Errorf("pod %s: the emptyDir is not set up", p.UID)
			}
		}
		release()
		synctest.Wait()
		for _, p := range pods {
			mustBeReady(t, m, p)
		}
	})
}

// A directory, and a file in it, as in the API's documentation: in parallel, the file's
// volume might not find the directory.
func TestAHostPathWaitsForTheOneThatCreatesIt(t *testing.T) {
	m := newMounter(t)
	for i := range 20 {
		dir := filepath.Join(tempDir(t), "made", fmt.Sprint(i))
		mustSetUp(t, m, aPod(fmt.Sprint("u", i), host("d", dir, v1.HostPathDirectoryOrCreate), host("f", dir+"/file", v1.HostPathFileOrCreate),
			host("g", dir+"/file", v1.HostPathFile), host("parent", filepath.Dir(dir)+"/", v1.HostPathDirectory)))
	}
}

func TestPrerequisitesOfHostPaths(t *testing.T) {
	m := newMounter(t)
	p := aPod("u1",
		host("0", "/a/b", v1.HostPathDirectoryOrCreate), host("1", "/a/b/c", v1.HostPathFileOrCreate), host("2", "/a", v1.HostPathDirectory),
		host("3", "/a/bc", v1.HostPathDirectory), host("4", "/a/b/c/", v1.HostPathFile), empty("5"), host("6", "/a/b", v1.HostPathUnset),
		host("7", "/", v1.HostPathDirectory))
	got := m.prerequisites(p, pod.UsedVolumes(p))
	want := [][]int{nil, {0}, {0, 1}, nil, {0, 1}, nil, nil, {0, 1}}
	if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		t.Errorf("got %v, want %v", got, want)
	}
}
