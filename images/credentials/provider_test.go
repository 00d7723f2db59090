package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// plugins creates a directory of plugins and a configuration; each plugin is a
// shell script.
func plugins(t *testing.T, config string, scripts map[string]string) ProvidersConfig {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		write(t, dir+"/bin/"+name, "#!/bin/sh\n"+script)
		if err := os.Chmod(dir+"/bin/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir+"/config.yaml", config)
	return ProvidersConfig{Config: dir + "/config.yaml", BinDir: dir + "/bin"}
}

const providerHead = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

func aProvider(name, match string, more ...string) string {
	return fmt.Sprintf("- name: %s\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: [%q]\n  defaultCacheDuration: 1h\n%s", name, match, strings.Join(more, ""))
}

// answer returns a plugin's response.
func answer(key, auths string) string {
	return fmt.Sprintf(`{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": %q, "auth": %s}`, key, auths)
}

func TestPluginRunsOncePerCacheKey(t *testing.T) {
	for _, tc := range []struct {
		key  string
		runs int
	}{{"Image", 3}, {"Registry", 2}, {"Global", 1}} {
		t.Run(tc.key, func(t *testing.T) {
			count := filepath.Join(t.TempDir(), "count")
			cfg := plugins(t, providerHead+aProvider("p", "*.reg.test", "  args: [--flag]\n  env: [{name: WHO, value: me}]\n"), map[string]string{
				"p": `echo "$1 $WHO $(cat)" >>` + count + "\ncat <<'END'\n" + answer(tc.key, `{"*.reg.test": {"username": "u", "password": "p"}}`) + "\nEND\n",
			})
			ps, err := LoadProviders(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, repo := range []string{"a.reg.test/x", "a.reg.test/y", "b.reg.test/x", "other.test/x"} {
					got, err := ps.lookup(t.Context(), repo, &v1.Pod{})
					want := "u"
					if repo == "other.test/x" {
						want = ""
					}
					if err != nil || users(got) != want {
						t.Errorf("%s: got %q, %v", repo, users(got), err)
					}
				}
			}
			said, _ := os.ReadFile(count)
			lines := strings.Split(strings.TrimSpace(string(said)), "\n")
			if len(lines) != tc.runs {
				t.Errorf("got %d runs, want %d: %s", len(lines), tc.runs, said)
			}
			want := `--flag me {"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"a.reg.test/x"}`
			if lines[0] != want {
				t.Errorf("request: got %s, want %s", lines[0], want)
			}
		})
	}
}

func TestPluginAnswersExpire(t *testing.T) {
	p := &provider{cache: map[string]cached{}}
	now := time.Now()
	p.addToCache(now, "reg.test", nil, time.Hour)
	p.addToCache(now, "never", nil, 0)
	if _, ok := p.cachedFor(now.Add(time.Hour), "x", "reg.test"); !ok {
		t.Error("expired too early")
	}
	if _, ok := p.cachedFor(now.Add(time.Hour+1), "reg.test"); ok {
		t.Error("still cached after its expiry")
	}
	if _, ok := p.cachedFor(now, "never"); ok {
		t.Error("kept an answer with duration 0")
	}
	p.addToCache(now.Add(2*time.Hour), "other", nil, time.Hour)
	if len(p.cache) != 1 {
		t.Errorf("got %d entries, want the expired one gone", len(p.cache))
	}
}

func TestBadPluginIsReportedAndAffectsNoOther(t *testing.T) {
	good := "cat <<'END'\n" + answer("Image", `{"reg.test": {"username": "good", "password": "p"}}`) + "\nEND\n"
	for name, tc := range map[string]struct{ script, want string }{
		"fails":     {"echo no token >&2; exit 3", "exit status 3; its output is in podd's log"},
		"garbage":   {"echo '{\"secret\": true'", "not the JSON"},
		"unknown":   {"echo '" + strings.Replace(answer("Image", "{}"), "{", `{"more": 1, `, 1) + "'", "not the JSON"},
		"version":   {"echo '" + strings.Replace(answer("Image", "{}"), "/v1", "/v2", 1) + "'", "credentialprovider.kubelet.k8s.io/v2"},
		"cache key": {"echo '" + answer("Planet", "{}") + "'", "Planet"},
		"flood":     {"head -c 3000000 /dev/zero", "longer than"},
		"loud":      {"head -c 3000000 /dev/zero | tr '\\0' e >&2; exit 1", "exit status 1"},
		"silent":    {"", "not the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := plugins(t, providerHead+aProvider("bad", "reg.test")+aProvider("good", "reg.test"), map[string]string{"bad": tc.script, "good": good})
			ps, err := LoadProviders(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ps.lookup(t.Context(), "reg.test/x", &v1.Pod{})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "credential provider bad: ") || len(err.Error()) > 2000 {
				t.Errorf("got %.300v, want %q in it", err, tc.want)
			}
			if strings.Contains(fmt.Sprint(err), "no token") {
				t.Errorf("what the plugin said, which may be a secret, is in %v", err)
			}
			if users(got) != "good" {
				t.Errorf("got %q, want the good plugin's", users(got))
			}
		})
	}
}

func TestPluginThatHangsEndsWithThePull(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	cfg := plugins(t, providerHead+aProvider("p", "reg.test"), map[string]string{"p": "sleep 3600 & echo $$ $! >" + pid + ".new; mv " + pid + ".new " + pid + "; wait"})
	ps, err := LoadProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	for range 2 {
		go func() { _, err := ps.lookup(ctx, "reg.test/x", &v1.Pod{}); ended <- err }()
	}
	var all []int
	for len(all) == 0 {
		if text, err := os.ReadFile(pid); err == nil {
			var plugin, child int
			if _, err := fmt.Sscan(string(text), &plugin, &child); err != nil {
				t.Fatal(err)
			}
			all = []int{plugin, child}
		}
		time.Sleep(time.Millisecond)
	}
	first, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := ps.lookup(first, "reg.test/x", &v1.Pod{}); !errors.Is(err, context.Canceled) {
		t.Errorf("one that gives up: got %v", err)
	}
	if err := syscall.Kill(all[0], 0); err != nil {
		t.Errorf("others wait for the plugin: %v", err)
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) { // long before the plugin would end
			t.Errorf("got %v", err)
		}
	}
	for _, process := range all {
		// Its child is init's to reap, and a signal that was sent may be still to come.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("process %d still runs: %s", process, stat)
				break
			}
		}
	}
}

// TestAPluginDoesNotSurviveAPoddThatIsKilled: another process of this test is podd.
func TestAPluginDoesNotSurviveAPoddThatIsKilled(t *testing.T) {
	if config := os.Getenv("PODD_TEST_PROVIDERS"); config != "" {
		ps, err := LoadProviders(ProvidersConfig{Config: config, BinDir: os.Getenv("PODD_TEST_PLUGINS")})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ps.lookup(t.Context(), "reg.test/x", &v1.Pod{})
		t.Fatalf("it was not killed: %v", err)
	}
	pid := filepath.Join(t.TempDir(), "pid")
	cfg := plugins(t, providerHead+aProvider("p", "reg.test"), map[string]string{"p": "echo $$ >" + pid + ".new; mv " + pid + ".new " + pid + "; exec sleep 3600"})
	podd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	podd.Env = append(os.Environ(), "PODD_TEST_PROVIDERS="+cfg.Config, "PODD_TEST_PLUGINS="+cfg.BinDir)
	if err := podd.Start(); err != nil {
		t.Fatal(err)
	}
	plugin := 0
	for limit := time.Now().Add(time.Minute); plugin == 0; time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(pid); err == nil {
			plugin, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		} else if time.Now().After(limit) {
			_ = podd.Process.Kill()
			t.Fatal("the plugin is not started")
		}
	}
	_ = podd.Process.Kill()
	_ = podd.Wait()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", plugin))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			_ = syscall.Kill(plugin, syscall.SIGKILL)
			t.Fatalf("the plugin still runs: %s", stat)
		}
	}
}

func TestOnePluginProcessForManyPulls(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	cfg := plugins(t, providerHead+aProvider("p", "reg.test"), map[string]string{
		"p": "echo >>" + count + "; sleep 0.3\ncat <<'END'\n" + answer("Image", `{"reg.test": {"username": "u", "password": "p"}}`) + "\nEND\n",
	})
	ps, err := LoadProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	for range 10 {
		go func() {
			got, err := ps.lookup(t.Context(), "reg.test/x", &v1.Pod{})
			done <- fmt.Sprint(users(got), err)
		}()
	}
	for range 10 {
		if got := <-done; got != "u<nil>" {
			t.Errorf("got %s", got)
		}
	}
	if said, _ := os.ReadFile(count); len(said) != 1 {
		t.Errorf("got %d processes, want 1", len(said))
	}
}

func TestWhatIsWrongWithAProviderConfiguration(t *testing.T) {
	for name, tc := range map[string]struct{ config, want string }{
		"kind":        {strings.Replace(providerHead, "CredentialProviderConfig", "KubeletConfiguration", 1) + aProvider("p", "x"), "kind: got"},
		"version":     {strings.Replace(providerHead, "/v1", "/v9", 1) + aProvider("p", "x"), "apiVersion: got"},
		"field":       {providerHead + aProvider("p", "x", "  matchimage: [x]\n"), `unknown field "matchimage"`},
		"twice":       {providerHead + aProvider("p", "x", "  name: q\n"), "already"},
		"none":        {providerHead, "is empty"},
		"same name":   {providerHead + aProvider("p", "x") + aProvider("p", "y"), "providers[1].name"},
		"slash":       {providerHead + aProvider("../p", "x"), "slash"},
		"dots":        {providerHead + aProvider("..", "x"), "not the name"},
		"no match":    {providerHead + strings.Replace(aProvider("p", "x"), `["x"]`, "[]", 1), "matchImages: is empty"},
		"bad match":   {providerHead + aProvider("p", "x:y:z"), "matchImages[0]"},
		"bad glob":    {providerHead + aProvider("p", "[a.test"), "matchImages[0]"},
		"no duration": {providerHead + strings.Replace(aProvider("p", "x"), "  defaultCacheDuration: 1h\n", "", 1), "defaultCacheDuration: is missing"},
		"negative":    {providerHead + strings.Replace(aProvider("p", "x"), "1h", "-1h", 1), "negative"},
		"api":         {providerHead + strings.Replace(aProvider("p", "x"), "io/v1", "io/v3", 1), "apiVersion: got"},
		"token":       {providerHead + aProvider("p", "x", "  tokenAttributes: {serviceAccountTokenAudience: x, cacheType: Token}\n"), "service account tokens"},
		"program":     {providerHead + aProvider("gone", "x"), "no executable program"},
		"not yaml":    {"{", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := plugins(t, tc.config, map[string]string{"p": ""})
			_, err := LoadProviders(cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestProviderConfigurationsOfADirectoryAreOne(t *testing.T) {
	cfg := plugins(t, "", map[string]string{"a": "", "b": ""})
	dir := t.TempDir()
	cfg.Config = dir
	if _, err := LoadProviders(cfg); err == nil {
		t.Error("an empty directory: got no error")
	}
	write(t, dir+"/2.yaml", providerHead+aProvider("a", "x.test"))
	write(t, dir+"/1.yml", providerHead+aProvider("b", "x.test"))
	write(t, dir+"/README", "no configuration")
	ps, err := LoadProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(ps.all) != 2 || ps.all[0].config.Name != "b" {
		t.Errorf("got %d plugins, want b and a", len(ps.all))
	}
	if _, err := LoadProviders(ProvidersConfig{Config: dir, BinDir: dir + "/none"}); err == nil {
		t.Error("no directory of plugins: got no error")
	}
}
