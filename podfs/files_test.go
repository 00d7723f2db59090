package podfs

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// disk is Files in directories of the test's own.
type disk struct {
	*Files
	said bytes.Buffer
}

func newDisk(t *testing.T) *disk {
	dir, d := t.TempDir(), &disk{}
	d.Files = New(Dirs{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "pods"), ContainerLogs: filepath.Join(dir, "containers")},
		slog.New(slog.NewTextHandler(&d.said, nil)))
	return d
}

func aPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-web"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app", TerminationMessagePath: "/dev/termination-log"}}},
	}
}

func request(p *v1.Pod) pod.ContainerRequest {
	return pod.ContainerRequest{Pod: p, Container: &p.Spec.Containers[0], Inputs: pod.ContainerInputs{Hosts: []byte("10.99.0.3\tweb\n")}}
}

// seen is the pod with one container, as it is observed.
func seen(p *v1.Pod, id string, req pod.ContainerRequest) pod.Observed {
	return pod.Observed{UID: p.UID, Name: p.Name, Namespace: p.Namespace, Containers: []pod.Container{{
		ID: id, Name: "app", SandboxID: "box", LogPath: req.LogPath, TerminationLog: req.TerminationLog,
	}}}
}

func (d *disk) prepare(t *testing.T, req pod.ContainerRequest) pod.ContainerRequest {
	t.Helper()
	req, err := d.PrepareContainer(req)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestAContainersFilesAreMadeAndMounted(t *testing.T) {
	d := newDisk(t)
	req := request(aPod())
	req.Mounts = []pod.Mount{{HostPath: "/data", ContainerPath: "/d"}}
	got := d.prepare(t, req)
	if len(req.Mounts) != 1 || len(got.Mounts) != 3 || got.Mounts[1].ContainerPath != "/etc/hosts" || got.Mounts[1].HostPath != d.dirs.Hosts("uid-web") ||
		got.Mounts[2].ContainerPath != "/dev/termination-log" || got.Mounts[2].HostPath != got.TerminationLog || filepath.Dir(got.TerminationLog) != d.dirs.Container("uid-web", "app") {
		t.Errorf("got %+v", got)
	}
	for file, want := range map[string]os.FileMode{got.TerminationLog: 0o666, d.dirs.Hosts("uid-web"): 0o644} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %v", file, info, err, want)
		}
	}
	if got.LogPath != filepath.Join(d.dirs.Logs("default", "web", "uid-web"), "app", "0.log") || !there(filepath.Dir(got.LogPath)) {
		t.Errorf("got the log %s", got.LogPath)
	}
	if err := errors.Join(d.DiscardContainer(got), d.DiscardContainer(got)); err != nil || there(got.TerminationLog) || !there(d.dirs.Hosts("uid-web")) {
		t.Errorf("discarded: got %v, want the termination log gone, and what the pod's containers share not", err)
	}
}

func TestNothingIsMadeOverAContainersOwnFiles(t *testing.T) {
	d := newDisk(t)
	req := request(aPod())
	req.Mounts = []pod.Mount{{HostPath: "/my/hosts", ContainerPath: "/etc/hosts"}, {HostPath: "/my/log", ContainerPath: "/dev/termination-log"}}
	if got := d.prepare(t, req); len(got.Mounts) != 2 || got.TerminationLog != "" || there(d.dirs.Pod("uid-web")) {
		t.Errorf("got %+v", got)
	}
}

// TestTheLogsOfAPodOfWhichOnlyTheUIDIsKnownAreFound, and links to them removed: what they are
// of, the runtime does not have any more.
func TestTheLogsOfAPodOfWhichOnlyTheUIDIsKnownAreFound(t *testing.T) {
	d := newDisk(t)
	if _, _, ok, err := d.OrphanedLogs("uid"); ok || err != nil {
		t.Errorf("before any pod: got %v, %v", ok, err)
	}
	logs := map[string]string{"web_default_app-1.log": d.dirs.Logs("default", "web", "uid"), "web_default_app-2.log": d.dirs.Logs("default", "web", "other-uid")}
	for link, dir := range logs {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(d.dirs.ContainerLogs, 0o755), os.Symlink(dir+"/app/0.log", filepath.Join(d.dirs.ContainerLogs, link))); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"default_x_y_uid", "_web_uid", "web_uid"} { // of nobody
		if err := os.Mkdir(filepath.Join(d.dirs.PodLogs, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	namespace, name, ok, err := d.OrphanedLogs("uid")
	if namespace != "default" || name != "web" || !ok || err != nil {
		t.Errorf("got %q, %q, %v, %v", namespace, name, ok, err)
	}
	if there(filepath.Join(d.dirs.ContainerLogs, "web_default_app-1.log")) || !there(filepath.Join(d.dirs.ContainerLogs, "web_default_app-2.log")) {
		t.Error("want the links to its logs gone, and no others")
	}
	if _, _, ok, err := d.OrphanedLogs(""); ok || err != nil {
		t.Errorf("no UID: got %v, %v", ok, err)
	}
}

// TestLogsWithATooLongNameAreGone: such a directory cannot exist, and its removal would fail
// at every start.
func TestLogsWithATooLongNameAreGone(t *testing.T) {
	d := newDisk(t)
	if err := os.MkdirAll(d.dirs.PodLogs, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 190), UID: "u"}}
	if err := d.RemoveLogs(p); err != nil {
		t.Error(err)
	}
}

// TestALinkIsMadeOnceForEachContainer: observing a pod that does not change writes
// nothing.
func TestALinkIsMadeOnceForEachContainer(t *testing.T) {
	d := newDisk(t)
	p := aPod()
	o := seen(p, "id", d.prepare(t, request(p)))
	link := filepath.Join(d.dirs.ContainerLogs, "web_default_app-id.log")
	d.Link(o)
	if target, err := os.Readlink(link); err != nil || target != o.Containers[0].LogPath {
		t.Fatalf("got %s, %v", target, err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	d.Link(o)
	if there(link) {
		t.Error("the second observation wrote")
	}
	d.Link(pod.Observed{Containers: []pod.Container{{ID: "other"}}}) // of nobody
	if len(d.containerLogs) != 1 {
		t.Errorf("got %d known", len(d.containerLogs))
	}
}

// TestALinkThatCannotBeMadeIsSaidOnceAndTriedAgain: a log shipper misses it until
// then.
func TestALinkThatCannotBeMadeIsSaidOnceAndTriedAgain(t *testing.T) {
	d := newDisk(t)
	p := aPod()
	o := seen(p, "id", d.prepare(t, request(p)))
	if err := os.WriteFile(d.dirs.ContainerLogs, nil, 0o600); err != nil { // where the directory should be
		t.Fatal(err)
	}
	d.Link(o)
	d.Link(o)
	if n := strings.Count(d.said.String(), "cannot link container log"); n != 1 {
		t.Errorf("said %d times, want once: %s", n, &d.said)
	}
	if err := os.Remove(d.dirs.ContainerLogs); err != nil {
		t.Fatal(err)
	}
	d.Link(o)
	if !there(filepath.Join(d.dirs.ContainerLogs, "web_default_app-id.log")) {
		t.Error("there is no link")
	}
}

// TestLinksOfContainersThatSomebodyElseRemovedAreForgotten, but not those that
// were made while the list was.
func TestLinksOfContainersThatSomebodyElseRemovedAreForgotten(t *testing.T) {
	d := newDisk(t)
	p := aPod()
	req := d.prepare(t, request(p))
	stays, goes := filepath.Join(d.dirs.ContainerLogs, "web_default_app-stays.log"), filepath.Join(d.dirs.ContainerLogs, "web_default_app-goes.log")
	d.Link(seen(p, "stays", req))
	d.Link(seen(p, "goes", req))
	listed := []pod.Summary{{UID: p.UID, Containers: map[string]pod.ContainerState{"stays": pod.ContainerRunning}}}
	mark := d.MarkListing()
	d.Link(seen(p, "goes", req))
	if d.PruneUnlisted(listed, mark); !there(stays) || !there(goes) || len(d.containerLogs) != 2 {
		t.Errorf("seen after the list was begun: got %d known, want both with their links", len(d.containerLogs))
	}
	if d.PruneUnlisted(listed, d.MarkListing()); !there(stays) || there(goes) || len(d.containerLogs) != 1 {
		t.Errorf("got %d known and the links %v and %v, want what is listed", len(d.containerLogs), there(stays), there(goes))
	}
	if d.SandboxRemoved("box"); there(stays) || len(d.containerLogs) != 0 {
		t.Errorf("after its sandbox: got %d known", len(d.containerLogs))
	}
}

func TestTerminationLogsArePoddsOwn(t *testing.T) {
	d := Dirs{Root: "/r"}
	for file, want := range map[string]bool{"/r/pods/u/containers/app/0a1b": true, "/r/pods/u/volumes/x/y": false, "/data/containers/log": false, "": false} {
		if got := d.IsTerminationLog(file); got != want {
			t.Errorf("%q: got %v, want %v", file, got, want)
		}
	}
}

// TestContainersHaveTheFilesOfTheirSandbox: one resolv.conf and hostname for all of them,
// with what they wrote to them, until there is a new sandbox.
func TestContainersHaveTheFilesOfTheirSandbox(t *testing.T) {
	d, p := newDisk(t), aPod()
	in := pod.SandboxInputs{ResolvConf: []byte("nameserver 192.0.2.1\n"), HostnameFile: []byte("web\n")}
	if err := d.PreparePod(p, in); err != nil {
		t.Fatal(err)
	}
	mounts := func(readOnly bool) (resolv, hostname pod.Mount) {
		req := request(p)
		req.SandboxInputs = in
		req.Container.SecurityContext = &v1.SecurityContext{ReadOnlyRootFilesystem: &readOnly}
		for _, m := range d.prepare(t, req).Mounts {
			switch m.ContainerPath {
			case "/etc/resolv.conf":
				resolv = m
			case "/etc/hostname":
				hostname = m
			}
		}
		return resolv, hostname
	}
	must := func(file, want string) {
		t.Helper()
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != want || info.Mode() != 0o644 {
			t.Errorf("%s: got %q, %v (%v), want %q", file, text, info.Mode(), err, want)
		}
	}
	resolv, hostname := mounts(false)
	must(resolv.HostPath, "nameserver 192.0.2.1\n")
	must(hostname.HostPath, "web\n")
	if resolv.ReadOnly || hostname.ReadOnly || !resolv.SELinuxRelabel {
		t.Errorf("got %+v and %+v", resolv, hostname)
	}
	if resolv, hostname := mounts(true); !resolv.ReadOnly || !hostname.ReadOnly {
		t.Errorf("with a read-only root file system: got %+v and %+v", resolv, hostname)
	}
	if err := os.WriteFile(resolv.HostPath, []byte("of a container"), 0o644); err != nil {
		t.Fatal(err)
	}
	mounts(false)
	must(resolv.HostPath, "of a container")
	if err := os.Remove(hostname.HostPath); err != nil { // the sandbox is an earlier podd's
		t.Fatal(err)
	}
	mounts(false)
	must(hostname.HostPath, "web\n")
	if err := d.PreparePod(p, in); err != nil {
		t.Fatal(err)
	}
	must(resolv.HostPath, "nameserver 192.0.2.1\n")
	for _, file := range []string{resolv.HostPath, hostname.HostPath} {
		if !slices.Contains(d.dirs.Files(p.UID), file) {
			t.Errorf("%s is not among what counts for the pod: %v", file, d.dirs.Files(p.UID))
		}
	}
}
