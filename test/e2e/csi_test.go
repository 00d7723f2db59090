package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

// csiDriver is upstream's mock driver of test/csidriver, as a daemon of the host.
type csiDriver struct {
	*env
	binary, dir, name string
	args              []string // more of the driver's
	cmd               *exec.Cmd
}

// csiDriverBinary builds the driver once for all tests, which run side by side.
var csiDriverBinary = sync.OnceValues(func() (string, error) {
	repo, err := testnode.RepoRoot()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(base, "csidriver")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir, cmd.Env = filepath.Join(repo, "test/csidriver"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the CSI driver: %w\n%s", err, out)
	}
	return binary, nil
})

// newCSIDriver builds the driver and starts nothing.
func (e *env) newCSIDriver(name string) *csiDriver {
	e.Helper()
	binary, err := csiDriverBinary()
	if err != nil {
		e.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "csi") // sockets need short paths
	if err != nil {
		e.Fatal(err)
	}
	d := &csiDriver{env: e, dir: dir, binary: binary, name: name}
	e.Cleanup(func() { d.end(unix.SIGKILL); os.RemoveAll(dir) })
	return d
}

// data is where the driver keeps volumes.
func (d *csiDriver) data() string { return filepath.Join(d.dir, "data") }

func (d *csiDriver) start() {
	d.Helper()
	d.cmd = exec.Command(d.binary, append([]string{"-name", d.name, "-dir", d.dir, "-data", d.data(), "-registry", filepath.Join(cmp.Or(d.podd.Root, d.node.Root()), "plugins_registry")}, d.args...)...)
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.Fatal(err)
	}
	defer log.Close()
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		d.Fatal(err)
	}
}

// end ends the driver, if it runs.
func (d *csiDriver) end(sig unix.Signal) {
	d.Helper()
	if d.cmd == nil {
		return
	}
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.Error(err)
	}
	_ = d.cmd.Wait()
	d.cmd = nil
}

// said waits until the driver's log has a line.
func (d *csiDriver) said(line string) {
	d.Helper()
	d.eventually("the driver logs "+line, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(d.dir, "log"))
		if err == nil && !strings.Contains(string(text), line) {
			err = fmt.Errorf("it says:\n%s", text)
		}
		return err
	})
}

// one is the content of the only volume that the driver has made.
func (d *csiDriver) one(file string) string {
	d.Helper()
	all, err := filepath.Glob(filepath.Join(d.data(), "*", file))
	if err != nil || len(all) != 1 {
		d.Fatalf("the driver has %v (%v), want one %s", all, err, file)
	}
	text, err := os.ReadFile(all[0])
	if err != nil {
		d.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// gone waits until a pod's directory is.
func (e *env) gone(uid string) {
	e.Helper()
	e.eventually("the pod's directory is removed", func(context.Context) error {
		if _, err := os.Lstat(filepath.Join(e.node.Root(), "pods", uid)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is there (%v)", err)
		}
		return nil
	})
}

// driverDocument is a CSIDriver.
const driverDocument = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: ${DRIVER}}
spec:
  attachRequired: false
  podInfoOnMount: true
  volumeLifecycleModes: [Ephemeral, Persistent]
`

// withCSI is a pod that writes into a volume at /data, and marks that.
func (e *env) withCSI(name, source string) string {
	text := e.podOf(name, "echo x >> /data/starts; id -u > /data/who; : > /out/"+name+"; ${REST}")
	return replaced(e, text, "mountPath: /out}]", "mountPath: /out}, {name: data, mountPath: /data}]") +
		"  - name: data\n    " + source + "\n"
}

// An inline volume of a driver that comes late, while podd and the driver are killed
// in between: the pod waits with the kubelet's words and starts when the driver is
// there, keeps its volume, and its end waits for the driver. What the driver keeps is
// its own.
func TestAPodHasAnInlineVolumeOfACSIDriver(t *testing.T) {
	e := begin(t)
	d := e.newCSIDriver("inline.csi.example.com")
	e.write("driver.yaml", replacedAll(e, driverDocument, "${DRIVER}", d.name))
	e.write("web.yaml", e.withCSI("web", "csi: {driver: "+d.name+", volumeAttributes: {size: small}}"))
	e.event("web", "FailedMount", `MountVolume.SetUp failed for volume "data" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name `+d.name+` not found in the list of registered CSI drivers`)
	d.start()
	e.mark("web")
	p := e.ready("web")
	d.said("registered: true")
	if got := d.one("starts"); got != "x" {
		t.Errorf("the driver's volume has %q", got)
	}
	e.kill()
	e.start()
	again := e.ready("web")
	if again.UID != p.UID || again.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the pod did not stay as it was: %s", describe(again))
	}

	d.end(unix.SIGKILL)
	e.remove("web.yaml")
	e.problem(string(p.UID), "Unmounter.TearDownAt failed", "podd retries and deletes nothing until then")
	e.write("other.yaml", e.resting("other"))
	e.mark("other") // nobody else waits
	e.kill()        // which forgets that it owes this
	e.start()
	e.problem(string(p.UID), "Unmounter.TearDownAt failed")
	d.start()
	e.gone(string(p.UID))
	d.said("NodeUnpublishVolume")
	if got := d.one("starts"); got != "x" {
		t.Errorf("what the driver keeps: %q", got)
	}
}

// claimOfDriver is a PersistentVolume of a driver, with a claim. The mock knows
// volumes 1, 2 and 3.
const claimOfDriver = `apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  csi: {driver: ${DRIVER}, volumeHandle: "1", fsType: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: ""
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`

// A persistent volume is staged once for two pods, unstaged with the last of them, in a
// podd that did not stage it, and has for the next pod what the first ones wrote.
func TestPodsShareAPersistentVolumeOfACSIDriver(t *testing.T) {
	e := begin(t)
	d := e.newCSIDriver("disk.csi.example.com")
	d.start()
	e.write("disk.yaml", replacedAll(e, claimOfDriver, "${DRIVER}", d.name)) // there is no CSIDriver: nothing is to be attached
	e.write("one.yaml", e.withCSI("one", "persistentVolumeClaim: {claimName: data}"))
	e.write("two.yaml", e.withCSI("two", "persistentVolumeClaim: {claimName: data}"))
	e.mark("one", "two")
	one, two := e.ready("one"), e.ready("two")
	d.said("NodeExpandVolume 1: <nil>")
	if n := d.count("NodeStageVolume 1"); n != 1 {
		t.Errorf("staged %d times, want once", n)
	}
	e.remove("one.yaml")
	e.gone(string(one.UID))
	if d.count("NodeUnstageVolume") > 0 {
		t.Error("unstaged while another pod uses it")
	}
	e.kill()
	e.remove("two.yaml")
	d.end(unix.SIGTERM) // the driver's sockets are gone, too
	e.start()
	e.problem(string(two.UID), "driver name "+d.name+" not found in the list of registered CSI drivers")
	d.start()
	e.gone(string(two.UID))
	d.said("NodeUnstageVolume 1: <nil>")
	if left, err := filepath.Glob(filepath.Join(e.node.Root(), "plugins/kubernetes.io/csi", d.name, "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
	e.write("three.yaml", e.withCSI("three", "persistentVolumeClaim: {claimName: data}"))
	e.mark("three")
	three := e.ready("three")
	if got := d.one("starts"); got != "x\nx\nx" {
		t.Errorf("the volume has %q, want what three pods wrote", got)
	}
	e.remove("three.yaml")
	e.gone(string(three.UID)) // while its driver is there
}

// count says how often the driver logged a call.
func (d *csiDriver) count(call string) int {
	d.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		d.Fatal(err)
	}
	return strings.Count(string(text), call)
}

// TestADeviceOfACSIDriverReachesItsContainers: two pods have the device, one read-only,
// over a restart of podd, and what is written is on the device. The driver is asked for
// it once, and takes it back with the last pod.
func TestADeviceOfACSIDriverReachesItsContainers(t *testing.T) {
	e := begin(t)
	device := loopDevice(t, 8)
	d := e.newCSIDriver("block.csi.example.com")
	if err := errors.Join(os.Mkdir(d.data(), 0o755), os.Symlink(device, filepath.Join(d.data(), "1"))); err != nil {
		t.Fatal(err)
	}
	d.start()
	text := replacedAll(e, claimOfDriver, "${DRIVER}", d.name)
	e.write("disk.yaml", replacedAll(e, text, "spec:\n", "spec:\n  volumeMode: Block\n"))
	with := func(name, script, more string) string {
		text := e.podOf(name, script+"; ${REST}") + "  - name: data\n    persistentVolumeClaim: {claimName: data" + more + "}\n"
		return replaced(e, text, "    volumeMounts:", "    volumeDevices: [{name: data, devicePath: /dev/xvda}]\n    volumeMounts:")
	}
	e.write("writer.yaml", with("writer", "test -b /dev/xvda && printf 'raw words' > /dev/xvda && sync && : > /out/writer", ""))
	e.mark("writer")
	writer := e.ready("writer")
	e.kill()
	e.start()
	e.write("reader.yaml", with("reader", "{ head -c 9 /dev/xvda; echo; (: > /dev/xvda) 2>/dev/null && echo written || echo refused; } > /out/read.tmp; mv /out/read.tmp /out/read", ", readOnly: true"))
	e.mark("read")
	if got := strings.Fields(e.contents("read")); !slices.Equal(got, []string{"raw", "words", "refused"}) {
		t.Errorf("the reader: got %q", got)
	}
	reader := e.ready("reader")
	if after := e.ready("writer"); containerID(after, "main") != containerID(writer, "main") {
		t.Error("the first pod's container did not stay as it was")
	}
	if n := d.count("NodeStageVolume 1"); n != 1 {
		t.Errorf("staged %d times, want once", n)
	}
	e.remove("writer.yaml")
	e.gone(string(writer.UID))
	if d.count("NodeUnstageVolume") > 0 {
		t.Error("unstaged while another pod uses it")
	}
	e.remove("reader.yaml")
	e.gone(string(reader.UID))
	d.said("NodeUnstageVolume 1: <nil>")
	text2, err := os.ReadFile(device)
	if err != nil || !strings.HasPrefix(string(text2), "raw words") {
		t.Errorf("the device has %.9q (%v), want what the pod wrote", text2, err)
	}
}
