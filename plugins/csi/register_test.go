package csi

import (
	"context"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podd/internal/pod"
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
			if d, err := n.drivers.driver(driverName, ""); err != nil || d.endpoint != c.at(f, n) {
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

// What another driver is rejected for is no reason why this one is missing.
func TestAMissingDriverHasNoReasonOfAnother(t *testing.T) {
	n := newNode(t, "")
	other := newFake(t, "other.example.com")
	other.versions = nil
	other.serve().register(n)
	<-other.status
	eventually(t, "the other one is rejected", func() bool {
		_, err := n.drivers.driver("other.example.com", "")
		return err != nil && strings.Contains(err.Error(), "is rejected")
	})
	_, err := n.drivers.driver(driverName, "")
	want := "driver name " + driverName + " not found in the list of registered CSI drivers (drivers register with a socket in " + n.plugins.Dir() + ")"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
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

// gone removes the socket of a registrar, and waits until the driver is forgotten.
func (f *fake) gone(n *testNode) error {
	if err := os.Remove(f.registrar(n)); err != nil {
		return err
	}
	eventually(f.t, "the driver is forgotten", func() bool { return len(n.Drivers()) == 0 })
	return nil
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
		before = told()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.limit = 5
		return nil
	})
	if err := n.RefreshAttachLimit(t.Context(), driverName); err != nil {
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
