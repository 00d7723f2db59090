package csi

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podd/internal/pod"
	"podd/internal/wake"
)

func TestADriversSocketIsWhatItsRegistrarSays(t *testing.T) {
	for name, c := range map[string]struct {
		socket func(*fake) string
		at     func(*fake, *testNode) string
	}{
		"a path": {(*fake).endpoint, func(f *fake, _ *testNode) string { return f.endpoint() }},
		"a URL":  {func(f *fake) string { return "unix://" + f.endpoint() }, func(f *fake, _ *testNode) string { return f.endpoint() }},
		"none":   {func(*fake) string { return "" }, (*fake).registrar},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := newNode(t, ""), newFake(t, driverName)
			f.socket = c.socket(f)
			f.serve().register(n)
			n.has(driverName)
			if d, err := n.registry.driver(driverName, ""); err != nil || d.endpoint != c.at(f, n) {
				t.Errorf("got %+v, %v, want %s", d, err, c.at(f, n))
			}
			n.mustSetUp(n.persistent("a", driverName, "h"))
		})
	}
}

// It becomes the name of a directory, and a CSINode has it.
func TestTheNameOfADriver(t *testing.T) {
	const rule = "plugin validation failed with err: driver name "
	longest := strings.Repeat("a", maxDriverName)
	for name, want := range map[string]string{
		driverName:                "",
		"Disk.Example.com":        "",
		longest:                   "",
		longest + "a":             rule + `"` + longest + `a": must be no more than 63 characters`,
		strings.Repeat("a", 101):  rule + `"` + strings.Repeat("a", 100) + `…": must be no more than 63 characters`,
		strings.Repeat("a", 100):  rule + `"` + strings.Repeat("a", 100) + `": must be no more than 63 characters`,
		"":                        rule + `"": a lowercase RFC 1123 subdomain must consist of`,
		"../../etc":               rule + `"../../etc": a lowercase RFC 1123 subdomain must consist of`,
		"disk.example.com/volume": rule + `"disk.example.com/volume": a lowercase RFC 1123 subdomain must consist of`,
	} {
		if err := checkName(name); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
}

// The pause doubles, up to the longest. Nothing says how much longer it is on a busy machine.
func TestADriverIsAskedMoreAndMoreRarely(t *testing.T) {
	const first = 20 * time.Millisecond
	n := newNode(t, "", func(v *Volumes) { v.registry.times.retry = wake.Backoff{First: first, Last: time.Hour} })
	f := newFake(t, driverName)
	var mu sync.Mutex
	var asked []time.Time
	f.on("NodeGetInfo", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, time.Now())
		return status.Error(codes.Unavailable, "starting")
	})
	f.serve().register(n)
	eventually(t, "it is asked four times", func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) >= 4 })
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []time.Duration{first, 2 * first, 4 * first} {
		if got := asked[i+1].Sub(asked[i]); got < want {
			t.Errorf("attempt %d came after %v, want %v at least", i+2, got, want)
		}
	}
}

// What another driver is rejected for is no reason why this one is missing.
func TestAMissingDriverHasNoReasonOfAnother(t *testing.T) {
	n := newNode(t, "")
	other := newFake(t, "other.example.com")
	other.versions = nil
	other.serve().register(n)
	<-other.status
	eventually(t, "the other one is rejected", func() bool {
		_, err := n.registry.driver("other.example.com", "")
		return err != nil && strings.Contains(err.Error(), "is rejected")
	})
	_, err := n.registry.driver(driverName, "")
	want := "driver name " + driverName + " not found in the list of registered CSI drivers (drivers register with a socket in " + n.registry.dir + ")"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// What a registrar says may be of any length.
func TestTheKindOfAPluginIsShortened(t *testing.T) {
	n, f := newNode(t, ""), newFake(t, driverName)
	f.kind = strings.Repeat("x", 99) + "éé"
	f.serve().register(n)
	want := "no handler registered for plugin type: " + strings.Repeat("x", 99) + "… at socket " + f.registrar(n)
	if s := <-f.status; !strings.HasSuffix(s.Error, want) {
		t.Errorf("got %q, want %q", s.Error, want)
	}
}

func TestADriverThatDoesNotSayItsNameIsRejected(t *testing.T) {
	n, f := newNode(t, ""), newFake(t, driverName)
	f.on("GetPluginInfo", func(context.Context) error { return status.Error(codes.Internal, "starting") })
	f.serve().register(n)
	want := "plugin registration failed with err: GetPluginInfo of the driver at " + f.endpoint()
	if s := <-f.status; s.PluginRegistered || !strings.Contains(s.Error, want) {
		t.Errorf("the registrar got %v, want %q", s, want)
	}
	if got := n.Drivers(); len(got) > 0 {
		t.Errorf("registered are %v", got)
	}
}

// gone removes the socket of a registrar, and waits until that is known.
func (f *fake) gone(n *testNode) error {
	if err := os.Remove(f.registrar(n)); err != nil {
		return err
	}
	eventually(f.t, "its socket is forgotten", n.knowsNoSocket)
	return nil
}

// Nobody would ever remove it.
func TestADriverWhoseSocketGoesWhileItRegistersIsNotRegistered(t *testing.T) {
	n, f := newNode(t, ""), newFake(t, driverName)
	done := make(chan struct{})
	f.on("NodeGetInfo", func(context.Context) error { defer close(done); return f.gone(n) })
	f.serve().register(n)
	<-done
	other := newFake(t, "other.example.com").serve().register(n)
	n.has("other.example.com")
	if got := n.Drivers(); len(got) != 1 {
		t.Errorf("registered are %v, want %s alone", got, other.name)
	}
}

func TestADriverThatGoesWhileItIsAskedForItsLimitIsNotThereAgain(t *testing.T) {
	f := newFake(t, driverName).serve()
	n, c := inCluster(t, "", f)
	told := func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.changes }
	var before int
	f.on("NodeGetInfo", func(context.Context) error {
		f.on("NodeGetInfo", nil)
		if err := f.gone(n); err != nil {
			return err
		}
		eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
		before = told()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.limit = 5
		return nil
	})
	if err := n.Refresh(t.Context(), driverName); err != nil {
		t.Fatal(err)
	}
	if got := n.Registered(); len(got) > 0 || told() != before {
		t.Errorf("registered are %+v, and the cluster was told %d times of it", got, told()-before)
	}
}

// Whoever asks for statistics is no pod that waits.
func TestStatsDoNotWaitForADriver(t *testing.T) {
	n, f := withDriver(t)
	v := n.persistent("a", driverName, "h")
	n.mustSetUp(v)
	f.stop()
	eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
	if _, err := n.Stats(t.Context(), v.Dir); err == nil {
		t.Fatal("got statistics without a driver")
	}
	if _, err := n.SetUp(t.Context(), n.persistent("b", driverName, "h")); err == nil {
		t.Fatal("set up without a driver")
	}
	f.serve().register(n)
	if uid := <-n.woken; uid != pod.UID("b") {
		t.Errorf("woke %q", uid)
	}
	if len(n.woken) > 0 {
		t.Errorf("also woke %q", <-n.woken)
	}
}

// As upstream: a name that begins with a dot is of a socket that is still being made.
func TestOnlySocketsWithAWholeNameRegister(t *testing.T) {
	n := newNode(t, "")
	hidden := newFake(t, "hidden.example.com").serve()
	registerAs(hidden, n, ".reg.sock")
	mustWrite(t, filepath.Join(n.registry.dir, "file.sock"), "")
	newFake(t, driverName).serve().register(n)
	n.has(driverName)
	n.registry.mu.Lock()
	known := len(n.registry.sockets)
	n.registry.mu.Unlock()
	if known != 1 {
		t.Errorf("%d sockets register, want 1", known)
	}
	if err := os.Rename(filepath.Join(n.registry.dir, ".reg.sock"), filepath.Join(n.registry.dir, "reg.sock")); err != nil {
		t.Fatal(err)
	}
	n.has("hidden.example.com")
}

func TestASocketThatIsRenamedRegistersAnew(t *testing.T) {
	n := newNode(t, "")
	f := newFake(t, driverName).serve().register(n)
	n.has(driverName)
	other := filepath.Join(n.registry.dir, "renamed.sock")
	if err := os.Rename(f.registrar(n), other); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is registered by its new socket", func() bool {
		d, err := n.registry.driver(driverName, "")
		return err == nil && d.registrar == other
	})
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
}

// Its directory may come with it, by a rename.
func TestASocketInADirectoryThatIsNewIsFound(t *testing.T) {
	n := newNode(t, "")
	f := newFake(t, driverName).serve()
	made := filepath.Join(n.root, "made")
	if err := os.Mkdir(made, 0o750); err != nil {
		t.Fatal(err)
	}
	registerAs(f, n, "../made/reg.sock")
	if err := os.Rename(made, filepath.Join(n.registry.dir, "sub")); err != nil {
		t.Fatal(err)
	}
	n.has(driverName)
}

// The kernel may tell of a file that podd has listed already.
func TestASocketThatIsFoundTwiceRegistersOnce(t *testing.T) {
	n := newNode(t, "")
	f := newFake(t, driverName).serve().register(n)
	<-f.status
	var work sync.WaitGroup
	n.registry.found(t.Context(), nil, &work, f.registrar(n))
	work.Wait()
	if len(f.status) > 0 {
		t.Errorf("the registrar got %v, too", <-f.status)
	}
	n.has(driverName)
}

func TestARegistrationEndsWithItsSocket(t *testing.T) {
	n, f := newNode(t, ""), newFake(t, driverName)
	ended := make(chan error, 1)
	f.on("NodeGetInfo", func(ctx context.Context) error {
		if err := os.Remove(f.registrar(n)); err != nil {
			ended <- err
			return err
		}
		select {
		case <-ctx.Done():
			ended <- nil
		case <-time.After(20 * time.Second): // less than the call may take
			ended <- errors.New("the driver is asked still")
		}
		return ctx.Err()
	})
	f.serve().register(n)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTheDirectoryOfDriversIsMadeAnew(t *testing.T) {
	n := newNode(t, "")
	f := newFake(t, driverName).serve().register(n)
	n.has(driverName)
	f.stop() // a socket that is open keeps the kernel from telling that its directory is removed
	if err := os.RemoveAll(n.registry.dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the directory is there again", func() bool { _, err := os.Stat(n.registry.dir); return err == nil })
	f.serve().register(n)
	n.has(driverName)
}

func TestDriversRegisterOnceTheirDirectoryCanBeWatched(t *testing.T) {
	log := &lines{}
	n := newNode(t, "", func(v *Volumes) {
		v.registry.log = slog.New(slog.NewTextHandler(log, nil))
		if err := os.Remove(v.registry.dir); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, v.registry.dir, "in the way")
	})
	eventually(t, "the log says why", func() bool {
		return log.has("cannot watch for CSI drivers: trying again") && log.has("not a directory")
	})
	if err := os.Remove(n.registry.dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the directory is there again", func() bool { _, err := os.Stat(n.registry.dir); return err == nil })
	newFake(t, driverName).serve().register(n)
	n.has(driverName)
}
