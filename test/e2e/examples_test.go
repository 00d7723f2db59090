package e2e

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
	"podd/test/e2e/testnode"
)

// exampleImages names the directory of the images that Debian's packages make.
const exampleImages = "PODD_TEST_EXAMPLE_IMAGES"

// promise is what a file of examples/ is to do.
type promise struct {
	name   string
	images []string // that Debian's packages make
	does   func(x *example)
}

// examples are the files of examples/, each with what its comment promises. Its places on the
// host and its ports become the test's own, and nothing else of it.
var examples = []promise{
	{"web", nil, (*example).web},
	{"job", nil, (*example).job},
	{"worker", nil, (*example).worker},
	{"device", nil, (*example).device},
	{"hardened", nil, (*example).hardened},
	{"init", nil, (*example).init},
	{"remote", nil, (*example).remote},
	{"postgres", []string{"postgres"}, (*example).postgres},
	{"proxy", []string{"nginx"}, (*example).proxy},
	{"prometheus", []string{"prometheus", "node-exporter"}, (*example).prometheus},
	{"exporter", []string{"node-exporter"}, (*example).exporter},
}

// TestEveryExampleIsValidAndHasATest: no problem and no warning, of each alone and of all
// together; a row among the examples and in their table; the command that runs it in its head.
func TestEveryExampleIsValidAndHasATest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd is not built for these tests without root")
	}
	if nodes.err != nil {
		t.Fatal(nodes.err)
	}
	dir := exampleDir(t)
	table, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(pods int, path string) {
		out, err := exec.Command(nodes.bundle.Podd, "validate", "-o", "json", path).Output()
		var v struct {
			Pods            []string
			Problems, Needs []pod.Problem
		}
		if err = errors.Join(err, json.Unmarshal(out, &v)); err != nil || len(v.Pods) != pods {
			t.Errorf("podd validate %s: got pods %q and %v, want %d", path, v.Pods, err, pods)
		}
		for _, p := range slices.Concat(v.Problems, v.Needs) {
			t.Error(p.String())
		}
	}
	count := 0
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".yaml")
		if !is {
			if e.Name() != "README.md" {
				t.Errorf("examples/%s is neither a manifest nor README.md", e.Name())
			}
			continue
		}
		count++
		if !slices.ContainsFunc(examples, func(x promise) bool { return x.name == name }) {
			t.Errorf("examples/%s has no row in this test", e.Name())
		}
		if !strings.Contains(string(table), "| ["+e.Name()+"]("+e.Name()+") |") {
			t.Errorf("examples/README.md does not list %s", e.Name())
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "\napiVersion:")
		for _, want := range []string{"\n# Run:", "\n# Look at:", "\n# Change:"} {
			if !strings.Contains(head, want) {
				t.Errorf("examples/%s: its head has no line %q", e.Name(), strings.TrimSpace(want))
			}
		}
		valid(1, filepath.Join(dir, e.Name()))
	}
	if count != len(examples) {
		t.Errorf("there are %d examples, and %d rows in this test", count, len(examples))
	}
	valid(count, dir)
}

func TestExamplesDoWhatTheyPromise(t *testing.T) {
	for _, x := range examples {
		if len(x.images) == 0 {
			t.Run(x.name, func(t *testing.T) { x.isKept(t) })
		}
	}
}

func TestExamplesOfDebiansPackagesDoWhatTheyPromise(t *testing.T) {
	needs(t, exampleImages)
	for _, x := range examples {
		if len(x.images) > 0 {
			t.Run(x.name, func(t *testing.T) { x.isKept(t) })
		}
	}
}

func exampleDir(t *testing.T) string {
	t.Helper()
	repo, err := testnode.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(repo, "examples")
}

// example is one that runs.
type example struct {
	*env
	name, text string
}

// isKept prepares a node with the images of the example, as its comment says, and tries it.
func (p promise) isKept(t *testing.T) {
	e := prepare(t)
	x := e.example(p.name)
	for _, image := range p.images {
		to := filepath.Join(e.podd.Images(), image+".tar")
		e.Cleanup(func() { _ = os.Remove(to) })
		e.forget("localhost/podd/" + image + ":1")
		if err := errors.Join(os.MkdirAll(e.podd.Images(), 0o755), exec.Command("cp", filepath.Join(os.Getenv(exampleImages), image+".tar"), to).Run()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, err := e.command(context.Background(), "logs", p.name, "--all-containers", "--prefix").CombinedOutput()
			t.Logf("podd logs: %v\n%s", err, out)
		}
	})
	p.does(x)
	e.noProblem()
}

func (e *env) example(name string) *example {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(exampleDir(e.T), name+".yaml"))
	if err != nil {
		e.Fatal(err)
	}
	return &example{env: e, name: name, text: string(text)}
}

// with changes what is the machine's: it must be there.
func (x *example) with(old, new string) { x.Helper(); x.text = replacedAll(x, x.text, old, new) }

// runs starts podd where it does not run, puts the manifest into its place, and waits until the
// pod is ready.
func (x *example) runs() *v1.Pod {
	x.Helper()
	if x.podd.Pid() == 0 {
		x.start()
	}
	x.write(x.name+".yaml", x.text)
	return x.ready(x.name)
}

// restartedOnce waits until the container, and no other, has been restarted once, and is ready.
func (x *example) restartedOnce(before *v1.Pod, container string) *v1.Pod {
	x.Helper()
	return x.waitPod(x.name, "ready after a restart of "+container, func(p *v1.Pod) error {
		if p.UID != before.UID {
			return testnode.Stop(fmt.Errorf("it is another pod: %s", describe(p)))
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			want := int32(0)
			if c.Name == container {
				want = 1
			}
			if c.RestartCount != want || c.Name == container && c.State.Running == nil {
				return fmt.Errorf("it is %s", describe(p))
			}
		}
		if condition(p, v1.PodReady) != v1.ConditionTrue {
			return fmt.Errorf("it is not ready: %s", describe(p))
		}
		return nil
	})
}

// anotherReady waits until another pod is in a pod's place, and ready.
func (x *example) anotherReady(before *v1.Pod) *v1.Pod {
	x.Helper()
	return x.waitPod(x.name, "replaced and ready", func(p *v1.Pod) error {
		if p.UID == before.UID || condition(p, v1.PodReady) != v1.ConditionTrue {
			return errors.New(describe(p))
		}
		return nil
	})
}

// answers waits until a server says something at an address.
func (x *example) answers(hostPort, want string) {
	x.Helper()
	x.eventually(hostPort+" answers with "+want, func(ctx context.Context) error {
		got, err := httpGet(ctx, hostPort)
		if err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
}

// says waits until the log of the container that runs has a text.
func (x *example) says(container, want string) {
	x.Helper()
	x.eventually("its log has "+want, func(context.Context) error {
		got, err := x.prints("logs", x.name, "-c", container)
		if err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
}

// port is one of the test's own, by its place after the first of the node.
func (x *example) port(n int) string { return fmt.Sprint(x.node.Port + n) }

func (x *example) web() {
	x.with("hostPort: 8080", "hostPort: "+x.port(5))
	x.runs()
	x.answers("127.0.0.1:"+x.port(5), "It runs. Pod web-"+x.podd.NodeName())
}

// The archive has everything, also what is another user's; of eight old ones six are kept; retry
// makes another one.
func (x *example) job() {
	from, to := filepath.Join(x.podd.Dir, "from"), filepath.Join(x.podd.Dir, "to")
	secret := filepath.Join(from, "sub/secret")
	if err := errors.Join(os.MkdirAll(filepath.Dir(secret), 0o700), os.MkdirAll(to, 0o755), os.WriteFile(secret, []byte("first"), 0o600),
		os.Chown(secret, 1000, 1000), os.Chown(filepath.Dir(secret), 1000, 1000)); err != nil {
		x.Fatal(err)
	}
	for i := range 8 {
		if err := os.WriteFile(fmt.Sprintf("%s/etc-20000101-00000%d.tar.gz", to, i), nil, 0o600); err != nil {
			x.Fatal(err)
		}
	}
	x.with("path: /etc\n", "path: "+from+"\n")
	x.with("path: /var/backups/etc\n", "path: "+to+"\n")
	x.start()
	x.write("job.yaml", x.text)
	x.phase("job", v1.PodSucceeded, 0)
	archive := x.archived(to, "first")
	x.says("backup", archive+": ")
	if all, err := filepath.Glob(to + "/*"); err != nil || len(all) != 7 || slices.Contains(all, to+"/etc-20000101-000001.tar.gz") {
		x.Errorf("got %q, %v; want the last seven", all, err)
	}
	if err := os.WriteFile(secret, []byte("second"), 0o600); err != nil {
		x.Fatal(err)
	}
	x.run("retry", "job")
	x.archived(to, "second")
	x.phase("job", v1.PodSucceeded, 0)
}

// archived waits until the newest archive has this in its file, and returns its name.
func (x *example) archived(dir, want string) (newest string) {
	x.Helper()
	x.eventually("an archive has the "+want+" content", func(context.Context) error {
		all, err := filepath.Glob(dir + "/etc-*.tar.gz")
		if err != nil || len(all) == 0 {
			return fmt.Errorf("got %q, %w", all, err)
		}
		last := slices.Max(all)
		newest = filepath.Base(last)
		f, err := os.Open(last)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
			return fmt.Errorf("its mode is %v, %w", info.Mode(), err)
		}
		unzipped, err := gzip.NewReader(f)
		if err != nil {
			return err
		}
		for r := tar.NewReader(unzipped); ; {
			h, err := r.Next()
			if err != nil {
				return fmt.Errorf("%s has no sub/secret: %w", newest, err)
			}
			if filepath.Clean(h.Name) != "sub/secret" {
				continue
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != want {
				return fmt.Errorf("got %q, %w", got, err)
			}
			return nil
		}
	})
	return newest
}

// An edit of the ConfigMap restarts the container, once, and neither the pod nor its network.
func (x *example) worker() {
	before := x.runs()
	x.says("worker", "Good morning (the file says: Good morning)\n")
	follow, ended := x.background("logs", "-f", "worker")
	x.has("the log is followed", follow, "Good morning")
	x.with("GREETING: Good morning", "GREETING: Good evening")
	x.write("worker.yaml", x.text)
	after := x.restartedOnce(before, "worker")
	x.says("worker", "Good evening (the file says: Good evening)\n")
	if after.Status.PodIP != before.Status.PodIP {
		x.Errorf("its address was %s, and is %s", before.Status.PodIP, after.Status.PodIP)
	}
	<-ended
	x.has("the former container ended when it was told to", follow, "told to end\n")
}

// The container has the plugin's device, and the same one after a restart.
func (x *example) device() {
	x.start()
	plugin := x.newDevicePlugin("gpu.example.com/card", "a", "b")
	plugin.start()
	x.allocatable(2)
	before := x.runs()
	id := x.healthOf("device", v1.ResourceHealthStatusHealthy)
	x.says("main", " /dev/gpu0 ")
	if got := x.exec(before, "main", "cat", "/gpu-id"); got != id {
		x.Errorf("the container has device %q, want %q", got, id)
	}
	if got := x.run("describe", "device"); !strings.Contains(got, "gpu.example.com/card:") || !strings.Contains(got, id+" (Healthy)") {
		x.Errorf("podd describe does not name the device: %s", got)
	}
	plugin.becomes(id, pluginapi.Unhealthy)
	x.healthOf("device", v1.ResourceHealthStatusUnhealthy)
	plugin.becomes(id, pluginapi.Healthy)
	x.healthOf("device", v1.ResourceHealthStatusHealthy)
	x.terminate(before, "main")
	after := x.restartedOnce(before, "main")
	if got := x.exec(after, "main", "cat", "/gpu-id"); got != id {
		x.Errorf("after a restart the container has device %q, want %q", got, id)
	}
	x.remove("device.yaml") // while the plugin is there
	x.podGone("device")
}

// What the kernel says of its process, and what it lets it write to.
func (x *example) hardened() {
	p := x.runs()
	x.answers(net.JoinHostPort(p.Status.PodIP, "8080"), "It runs.")
	c := x.inspected("hardened")["web"]
	for _, r := range c.Rows {
		if r.Differs {
			x.Errorf("podd inspect: %+v", r)
		}
	}
	none := "0000000000000000"
	for key, want := range map[string]string{
		"Uid": "10001\t10001\t10001\t10001", "Gid": "10001\t10001\t10001\t10001", "Groups": "10001", "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	} {
		if got := x.status(c.PID, key); got != want {
			x.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	root := fmt.Sprintf("/proc/%d/root", c.PID)
	if err := os.WriteFile(root+"/new", nil, 0o644); !errors.Is(err, unix.EROFS) {
		x.Errorf("the root file system: got %v, want that it is read-only", err)
	}
	var of unix.Statfs_t
	if err := errors.Join(os.WriteFile(root+"/tmp/new", nil, 0o644), unix.Statfs(root+"/tmp", &of)); err != nil || of.Type != unix.TMPFS_MAGIC || of.Blocks*uint64(of.Bsize) != 16<<20 {
		x.Errorf("/tmp: got %v, %+v; want 16 MiB of memory", err, of)
	}
	if p.Status.QOSClass != v1.PodQOSGuaranteed {
		x.Errorf("its class is %s", p.Status.QOSClass)
	}
	if !x.hasUserNamespaces() {
		return
	}
	x.with("  enableServiceLinks: false\n", "  enableServiceLinks: false\n  hostUsers: false\n")
	x.write("hardened.yaml", x.text)
	p = x.anotherReady(p)
	x.answers(net.JoinHostPort(p.Status.PodIP, "8080"), "It runs.")
	if uid := x.uidOutside(p); uid < 65536 {
		x.Errorf("with hostUsers: false its user is %d on the host", uid)
	}
}

// The steps come one after the other, and its probes see what is done to it.
func (x *example) init() {
	before := x.runs()
	web := net.JoinHostPort(before.Status.PodIP, "8080")
	x.answers(web, "Made by the first step.")
	var ends []int64
	for _, c := range before.Status.InitContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			x.Fatalf("init container %s: %+v", c.Name, c.State)
		}
		ends = append(ends, c.State.Terminated.StartedAt.UnixNano(), c.State.Terminated.FinishedAt.UnixNano())
	}
	if ends = append(ends, firstContainer(before).State.Running.StartedAt.UnixNano()); len(ends) != 5 || !slices.IsSorted(ends) {
		x.Errorf("the steps began and ended at %v", ends)
	}
	x.exec(before, "web", "rm", "/www/ready")
	x.waitPod("init", "not ready, and runs on", func(p *v1.Pod) error {
		if condition(p, v1.PodReady) != v1.ConditionFalse || firstContainer(p).State.Running == nil || firstContainer(p).RestartCount != 0 {
			return errors.New(describe(p))
		}
		return nil
	})
	x.exec(before, "web", "touch", "/www/ready")
	x.ready("init")
	x.exec(before, "web", "rm", "/tmp/alive")
	x.restartedOnce(before, "web")
	x.answers(web, "Made by the first step.")
}

// A server away or a broken file stop nothing, an edit replaces the pod, and a document that is
// gone ends it.
func (x *example) remote() {
	const nothing = "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}\n"
	var served atomic.Pointer[string]
	var asked atomic.Int64
	serve := func(text string) { served.Store(&text) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer asked.Add(1)
		if text := *served.Load(); text == "" {
			http.Error(w, "away", http.StatusServiceUnavailable)
		} else {
			_, _ = io.WriteString(w, text)
		}
	}))
	x.Cleanup(server.Close)
	x.podd.Args, x.podd.Config["httpCheckFrequency"] = append(x.podd.Args, "--manifest-url", server.URL+"/remote.yaml"), "100ms"
	serve(x.text)
	x.start()
	before := x.ready("remote")
	x.answers(net.JoinHostPort(before.Status.PodIP, "8080"), "It runs. Pod remote-")
	if got := x.run("ps", "-o", "wide"); !strings.Contains(got, " "+server.URL+"/remote.yaml ") {
		x.Errorf("podd ps does not name the source: %s", got)
	}
	for _, text := range []string{"", x.text[:len(x.text)/2]} {
		serve(text)
		n := asked.Load()
		x.eventually("the server is asked some times more", func(context.Context) error {
			if got := asked.Load() - n; got < 4 {
				return fmt.Errorf("it was asked %d times", got)
			}
			return nil
		})
		if p := x.ready("remote"); p.UID != before.UID || containerID(p, "web") != containerID(before, "web") {
			x.Errorf("while the server says %.10q the pod did not stay as it was", text)
		}
	}
	x.with("cpu: 10m", "cpu: 20m")
	serve(x.text)
	x.anotherReady(before)
	serve(nothing)
	x.podGone("remote")
}

// A row outlives its container and its pod; whoever comes by the network shows the password, and
// the port of this machine is the database's.
func (x *example) postgres() {
	x.with("hostPort: 5432", "hostPort: "+x.port(5))
	x.with("path: /var/lib/postgres\n", "path: "+filepath.Join(x.podd.Dir, "postgres")+"\n")
	before := x.runs()
	query := func(p *v1.Pod, sql string) string {
		x.Helper()
		return strings.TrimSpace(x.exec(p, "postgres", "psql", "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-Atc", sql))
	}
	query(before, "CREATE TABLE word (text text); INSERT INTO word VALUES ('kept')")
	login := func(password string) (string, error) {
		return x.node.CRI.Exec(x.Context(), containerID(before, "postgres"), "psql", "-Atc", "SELECT text FROM word",
			"host="+before.Status.PodIP+" user=postgres password="+password)
	}
	if got, err := login("change-me"); err != nil || strings.TrimSpace(got) != "kept" {
		x.Errorf("with the password: got %q, %v", got, err)
	}
	if got, err := login("wrong"); err == nil {
		x.Errorf("with a wrong password: got %q", got)
	}
	x.eventually("PostgreSQL answers at this machine's port", func(context.Context) error {
		c, err := net.Dial("tcp", "127.0.0.1:"+x.port(5))
		if err != nil {
			return err
		}
		defer c.Close()
		// SSLRequest of its protocol: may this connection be encrypted? Not without a certificate.
		answer := make([]byte, 1)
		if _, err := c.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer); err != nil || answer[0] != 'N' {
			return fmt.Errorf("got %q, %w", answer, err)
		}
		return nil
	})
	x.terminate(before, "postgres")
	after := x.restartedOnce(before, "postgres")
	if got := query(after, "SELECT text FROM word"); got != "kept" {
		x.Errorf("after a restart of the container: got %q", got)
	}
	x.remove("postgres.yaml")
	x.podGone("postgres")
	if got := query(x.runs(), "SELECT text FROM word"); got != "kept" {
		x.Errorf("after the pod was removed and came back: got %q", got)
	}
}

// nginx answers with what the program says; the program starts before it and ends after it; an
// edit of the configuration restarts both.
func (x *example) proxy() {
	x.with("hostPort: 8081", "hostPort: "+x.port(5))
	before := x.runs()
	address := "127.0.0.1:" + x.port(5)
	x.answers(address, "It runs. Pod proxy-"+x.podd.NodeName())
	header := func(want string) {
		x.Helper()
		x.eventually("nginx's headers", func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if got := answer.Header; !strings.HasPrefix(got.Get("Server"), "nginx") || got.Get("X-Proxied-By") != want {
				return fmt.Errorf("got %v", got)
			}
			return nil
		})
	}
	header("proxy-" + x.podd.NodeName())
	x.says("nginx", `"GET / HTTP/1.1" 200`)
	app, nginx := before.Status.InitContainerStatuses[0], firstContainer(before)
	if app.State.Running == nil || app.Started == nil || !*app.Started || nginx.State.Running.StartedAt.Before(&app.State.Running.StartedAt) {
		x.Errorf("the program is %+v, nginx %+v", app.State, nginx.State)
	}
	x.with("$hostname", "edited")
	x.write("proxy.yaml", x.text)
	header("edited")
	if p := x.ready("proxy"); p.UID != before.UID {
		x.Error("it is another pod")
	}
	x.remove("proxy.yaml")
	x.podGone("proxy")
	said := x.podd.LogTail(1 << 20)
	first, last := strings.LastIndex(said, "container=nginx code=0"), strings.LastIndex(said, "container=app code=0")
	if first < 0 || last < first {
		x.Error("nginx did not end first, or did not end in peace")
	}
}

// podd's targets are up, the pods' series are there, and so is the exporter's target once its
// job is no comment any more.
func (x *example) prometheus() {
	x.with("127.0.0.1:10255", fmt.Sprintf("127.0.0.1:%d", x.podd.ReadOnlyPort()))
	x.with("--web.listen-address=127.0.0.1:9090", "--web.listen-address=127.0.0.1:"+x.port(5))
	x.with("port: 9090", "port: "+x.port(5))
	x.with("scrape_interval: 15s", "scrape_interval: 1s")
	before := x.runs()
	p := prometheus{"http://127.0.0.1:" + x.port(5)}
	finds := func(expr string) {
		x.Helper()
		x.eventually("Prometheus finds "+expr, func(ctx context.Context) error {
			results, err := p.query(ctx, expr)
			if err == nil && len(results) == 0 {
				err = errors.New("there is no such series")
			}
			return err
		})
	}
	finds(`up{job="kubelet"} == 1`)
	finds(`up{job="cadvisor"} == 1`)
	finds(`kubelet_running_pods{job="kubelet"} == 1`)
	finds(`container_memory_working_set_bytes{container="prometheus", pod="prometheus-` + x.podd.NodeName() + `"} > 0`)
	exporter := x.example("exporter")
	exporter.listensAt(6)
	exporter.runs()
	x.with("127.0.0.1:9100", "127.0.0.1:"+x.port(6))
	job := x.text[strings.Index(x.text, "    #  - job_name"):strings.Index(x.text, "---\n")]
	x.with(job, strings.ReplaceAll(job, "    #  ", "      "))
	x.write("prometheus.yaml", x.text)
	finds(`up{job="node"} == 1`)
	finds(`up{job="kubelet"} == 1`)
	finds(`node_uname_info{job="node"}`)
	x.restartedOnce(before, "prometheus")
}

// listensAt gives the exporter a port of the test's own. Where no systemd has made / a shared
// mount, nothing can follow what is mounted there.
func (x *example) listensAt(n int) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != "/", false })
	if err != nil || len(mounts) == 0 {
		x.Fatalf("the mount of /: %v", err)
	}
	if !strings.Contains(mounts[len(mounts)-1].Optional, "shared:") {
		x.with("          mountPropagation: HostToContainer\n", "")
	}
	x.with("127.0.0.1:9100\n", "127.0.0.1:"+x.port(n)+"\n")
	x.with("port: 9100", "port: "+x.port(n))
}

// Its metrics are the host's: name, network devices, file systems.
func (x *example) exporter() {
	x.listensAt(5)
	x.runs()
	host, err := os.Hostname()
	if err != nil {
		x.Fatal(err)
	}
	x.eventually("the exporter tells of the host", func(ctx context.Context) error {
		text, err := testnode.GetLoopback(ctx, x.node.Port+5, "/metrics")
		if err != nil {
			return err
		}
		for _, want := range []string{`nodename="` + host + `"`, `node_network_up{device="` + x.node.Bridge + `"}`, `mountpoint="/"} `, "node_filesystem_avail_bytes{"} {
			if !strings.Contains(string(text), want) {
				return fmt.Errorf("the metrics have no %s", want)
			}
		}
		return nil
	})
}
