package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podd/test/e2e/testnode"
)

// secrets are values that nothing else has, by how they were given.
type secrets struct {
	mu     sync.Mutex
	values map[string]string
	// leaks are where they were found, each once.
	leaks map[string]bool
}

// value is one of that name.
func (s *secrets) value(name string) string {
	if s.values[name] == "" {
		s.values[name] = "xyzzy" + rand.Text()
	}
	return s.values[name]
}

func (s *secrets) base64(name string) string {
	return base64.StdEncoding.EncodeToString([]byte(s.value(name)))
}

// in names the values that a text has, plain or in base64.
func (s *secrets) in(text []byte) (names []string) {
	for name, value := range s.values {
		if bytes.Contains(text, []byte(value)) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte(value)))) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// look notes what a place has that it must not.
func (s *secrets) look(where string, text []byte, allowed ...string) {
	for _, name := range s.in(text) {
		if !slices.Contains(allowed, name) {
			s.mu.Lock()
			s.leaks[name+" is in "+where] = true
			s.mu.Unlock()
		}
	}
}

// Secrets that containers have as variables or arguments are in what containerd keeps
// of its containers (its database and their OCI configurations), and, while a command is
// started in one, in the temporary file that runc reads it from: outside podd's hands,
// as in the containers themselves.
var inContainers = []string{"env", "envFrom", "arg"}

// containerds are the places of containerd and of what it runs.
func (e *env) containerds() []string {
	return []string{filepath.Join(e.node.Root(), "containerd"), filepath.Join(e.node.State(), "containerd"), filepath.Join(e.node.State(), "tmp")}
}

// TestSecretsNeverReachADiskALogAnEventOrAnAnswer: values that were given in every way,
// good and bad, are looked for wherever podd could have put them. Where it has files on
// a tmpfs, that is no disk.
func TestSecretsNeverReachADiskALogAnEventOrAnAnswer(t *testing.T) {
	e := prepare(t)
	s := &secrets{values: map[string]string{}, leaks: map[string]bool{}}
	manifests := e.secretManifests(s)
	var answer atomic.Value
	answer.Store(e.vars("${HTTP}", s.value("http")).Replace(secretsFromURL))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(answer.Load().(string)))
	}))
	defer server.Close()
	e.podd.Config["staticPodURL"], e.podd.Config["httpCheckFrequency"] = server.URL, "200ms"
	e.podd.Args = append(e.podd.Args, "--v", "10")
	began := time.Now()
	stopWatching := e.watchSecrets(s)
	e.start()
	for _, file := range slices.Sorted(maps.Keys(manifests)) { // the first of two of a name has it
		e.write(file, manifests[file])
	}
	e.ready("uses")
	e.ready("from-url")
	e.waiting("unpulled", "ErrImagePull", "ImagePullBackOff")
	e.waiting("crash", "RunContainerError", "CrashLoopBackOff", "CreateContainerError")
	e.event("missing", "FailedMount", "no-such-key")
	for _, file := range []string{"base64.yaml", "key.yaml", "docker.yaml", "field.yaml", "number.yaml", "yaml.yaml", "json.json", "twice-b.yaml"} {
		e.problem(file)
	}
	e.answersHaveNoSecrets(s)

	e.crashesWithoutACore(s, unix.SIGABRT)
	e.ready("uses")
	e.crashesWithoutACore(s, unix.SIGSEGV)
	e.ready("uses")
	e.write("twice-b.yaml", "{") // broken as podd starts: the last good version, if there is one
	e.kill()
	e.start()
	e.problem("twice-b.yaml")
	e.answersHaveNoSecrets(s)

	stopWatching()
	e.disksHaveNoSecrets(s, began)
	e.onlyVariablesAreInContainerd(s)
	for leak := range s.leaks {
		t.Error(leak)
	}
	answer.Store(`{"apiVersion": "v1", "kind": "PodList", "items": []}`)
	e.podGone("from-url")
}

// watchSecrets looks at every file that podd closes after writing, even one that is
// removed at once; what it returns ends that.
func (e *env) watchSecrets(s *secrets) (stop func()) {
	e.Helper()
	podds := map[int]bool{} // an event may be read after its podd has ended
	w, err := watchWritten(func(pid int) bool {
		podds[pid] = podds[pid] || pid == e.podd.Pid()
		return podds[pid]
	}, func(path string, content []byte) { s.look(path+", as podd closed it", content) }, "/", e.podd.Dir)
	if err != nil {
		e.Logf("files that podd removes again are not looked at here: %v", err)
		return func() {}
	}
	return func() {
		e.Helper()
		files, err := w.close(e.podd.Dir)
		if err != nil || files == 0 {
			e.Errorf("looked at %d files that podd wrote, %v: want some", files, err)
		}
		e.Logf("looked at %d files as podd closed them", files)
	}
}

// answersHaveNoSecrets asks everything that podd answers, and runs its commands.
func (e *env) answersHaveNoSecrets(s *secrets) {
	e.Helper()
	paths := []string{"/pods", "/runningpods/", "/configz", "/metrics", "/metrics/probes", "/metrics/resource", "/metrics/cadvisor",
		"/healthz", "/livez", "/readyz?verbose", "/stats/summary", "/podd/v1/volumes", "/podd/v1/pods", "/podd/v1/problems", "/podd/v1/events",
		"/podd/v1/objects", "/podd/v1/version", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/cmdline"}
	answered := 0
	for _, path := range paths {
		socket, err := e.podd.Get(e.Context(), path)
		if err == nil {
			answered++
		}
		s.look("the socket's "+path, append(socket, fmt.Sprint(err)...))
		port, err := testnode.GetLoopback(e.Context(), e.podd.ReadOnlyPort(), path)
		s.look("the read-only port's "+path, append(port, fmt.Sprint(err)...))
	}
	if answered < len(paths)/2 {
		e.Errorf("%d of %d paths were answered: this test shows little", answered, len(paths))
	}
	commands := [][]string{{"ps"}, {"ps", "-o", "wide"}, {"ps", "-o", "json"}, {"ps", "-o", "yaml"}, {"events"}, {"events", "-o", "json"},
		{"get", "secrets"}, {"get", "secrets", "-o", "yaml"}, {"get", "configmaps"}}
	for _, pod := range []string{"uses", "crash", "missing", "unpulled", "from-url"} {
		name := pod + "-" + e.podd.NodeName()
		commands = append(commands, []string{"describe", name}, []string{"inspect", name}, []string{"inspect", name, "-o", "json"})
	}
	for _, args := range commands {
		out, _ := exec.CommandContext(e.Context(), e.podd.Binary, append(args, "--state-dir", e.node.State())...).CombinedOutput()
		if len(out) == 0 || bytes.Contains(out, []byte("unknown flag")) || bytes.Contains(out, []byte("unknown command")) {
			e.Errorf("podd %s: got %q", strings.Join(args, " "), out)
		}
		s.look("podd "+strings.Join(args, " "), out)
	}
	out, _ := exec.CommandContext(e.Context(), e.podd.Binary, "validate", e.podd.Manifests()).CombinedOutput()
	if !bytes.Contains(out, []byte("base64.yaml")) {
		e.Errorf("podd validate: got %q", out)
	}
	s.look("podd validate", out)
}

// crashesWithoutACore ends podd by a signal that leaves a core file of others.
func (e *env) crashesWithoutACore(s *secrets, sig unix.Signal) {
	e.Helper()
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(e.podd.Pid(), unix.RLIMIT_CORE, &all, nil); err != nil {
		e.Logf("the limit of core files cannot be lifted here: %v", err)
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", e.podd.Pid()))
	if err != nil {
		e.Fatal(err)
	}
	e.signal(sig)
	if _, how := e.podd.Ended(); strings.Contains(how, "core dumped") {
		e.Errorf("after %v: %s", sig, how)
	}
	cores, _ := filepath.Glob(filepath.Join(dir, "core*"))
	for _, core := range cores {
		text, _ := os.ReadFile(core)
		s.look(core, text)
	}
	e.start()
}

// disksHaveNoSecrets looks at every file on a disk that was written since, where podd
// writes, or anything that logs for it.
func (e *env) disksHaveNoSecrets(s *secrets, since time.Time) {
	e.Helper()
	files := 0
	containerd := e.containerds()
	for _, top := range []string{e.node.Dir, "/var/log", "/var/lib/cni", "/var/lib/podd", "/run", "/etc"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			var on unix.Statfs_t
			switch {
			case err != nil || unix.Statfs(path, &on) != nil:
				return nil // gone meanwhile
			case d.IsDir() && (on.Type == unix.TMPFS_MAGIC || path == e.podd.Manifests() || slices.Contains(containerd, path)):
				return fs.SkipDir // no disk; where their owner put them; see onlyVariablesAreInContainerd
			case !d.Type().IsRegular() || on.Type == unix.TMPFS_MAGIC: // a subPath of a Secret is a mount of its own
				return nil
			}
			if info, err := d.Info(); err != nil || info.ModTime().Before(since) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err == nil {
				files++
				s.look(path, text)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.Error(err)
		}
	}
	e.Logf("looked at %d files on disks", files)
	if out, err := exec.CommandContext(e.Context(), "journalctl", "--since", since.Format("2006-01-02 15:04:05"), "--no-pager").Output(); err == nil {
		s.look("the journal", out)
	}
	s.look("podd's log", []byte(e.podd.LogTail(64<<20)))
}

// onlyVariablesAreInContainerd: what containerd keeps has the variables and arguments
// of containers, and nothing else of Secrets. A search that finds those finds others.
func (e *env) onlyVariablesAreInContainerd(s *secrets) {
	e.Helper()
	seen := map[string]bool{}
	places := []string{
		filepath.Join(e.node.Root(), "containerd", "io.containerd.metadata.v1.bolt"),
		filepath.Join(e.node.State(), "containerd", "io.containerd.runtime.v2.task"),
		filepath.Join(e.node.State(), "tmp"),
	}
	for _, top := range e.containerds() {
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			var on unix.Statfs_t
			if err != nil || unix.Statfs(path, &on) != nil {
				return nil
			}
			if d.IsDir() && (d.Name() == "rootfs" || strings.HasPrefix(d.Name(), "io.containerd.snapshotter") || strings.HasPrefix(d.Name(), "io.containerd.content")) {
				return fs.SkipDir // images and what containers write
			}
			if !d.Type().IsRegular() {
				return nil
			}
			text, _ := os.ReadFile(path)
			var allowed []string
			if slices.ContainsFunc(places, func(place string) bool { return strings.HasPrefix(path, place+"/") }) {
				allowed = inContainers
			}
			for _, name := range s.in(text) {
				seen[name] = true
			}
			s.look(path, text, allowed...)
			return nil
		})
	}
	for _, name := range inContainers {
		if !seen[name] {
			e.Errorf("%s, which a container has, was not found with containerd: the search finds nothing", name)
		}
	}
}
