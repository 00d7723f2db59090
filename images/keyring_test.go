package images

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// users are the user names of credentials, in order.
func users(auths []pod.RegistryAuth) string {
	var all []string
	for _, a := range auths {
		all = append(all, a.Username+a.IdentityToken+a.RegistryToken)
	}
	return strings.Join(all, " ")
}

func TestWhichCredentialsAnImageGets(t *testing.T) {
	var index authIndex
	for key, user := range map[string]string{
		"https://index.docker.io/v1/":   "hub",
		"reg.test":                      "host",
		"reg.test/team":                 "team",
		"reg.test/team/app":             "app",
		"*.glob.test":                   "glob",
		"a*.glob.test":                  "narrow",
		"*.*.deep.test":                 "deep",
		"port.test:5000":                "port",
		"https://url.test/v2/":          "url",
		"http://v1.test/v1/team/":       "v1",
		"host.test:8080/path/to":        "path",
		"127.0.0.1:5000":                "loopback",
		"https://quay.test/v2/some/app": "quay",
	} {
		if err := index.add(key, pod.RegistryAuth{Username: user}); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	for repo, want := range map[string]string{
		"docker.io/library/busybox":   "hub",
		"docker.io/someone/app":       "hub",
		"reg.test/team/app":           "app team host",
		"reg.test/team/application":   "app team host", // a prefix of text, as upstream
		"reg.test/other":              "host",
		"abc.glob.test/x":             "narrow glob",
		"xyz.glob.test/x":             "glob",
		"x.abc.glob.test/x":           "",
		"a.b.deep.test/x":             "deep",
		"b.deep.test/x":               "",
		"port.test/x":                 "",
		"port.test:5000/x":            "port",
		"port.test:5001/x":            "",
		"url.test/anything":           "url",
		"v1.test/team/app":            "v1",
		"v1.test/other/app":           "",
		"host.test:8080/path/to/app":  "path",
		"host.test:8080/path":         "",
		"127.0.0.1:5000/app":          "loopback",
		"quay.test/some/app":          "quay",
		"unknown.test/library/busybo": "",
	} {
		if got := users(index.lookup(repo)); got != want {
			t.Errorf("%s: got %q, want %q", repo, got, want)
		}
	}
}

func TestWhatADockerConfigurationSays(t *testing.T) {
	file, err := parseDockerConfig([]byte(`{
		"auths": {
			"padded.test": {"auth": "`+b64("a:b")+`"},
			"plain.test": {"username": "u", "password": "p"},
			"raw.test": {"auth": "`+strings.TrimRight(b64("raw:x:y"), "=")+`"},
			"token.test": {"auth": "`+b64("ignored:x")+`", "identitytoken": "idt"},
			"bearer.test": {"registrytoken": "rt"},
			"empty.test": {},
			"bad.test": {"auth": "%%%"},
			"half.test": {"auth": "`+b64("secretwithoutcolon")+`"},
			"shape.test": "no mapping"
		},
		"credHelpers": {"x.test": "ecr-login"}, "unknown": 1
	}`), false)
	if err != nil {
		t.Fatal(err)
	}
	for repo, want := range map[string]pod.RegistryAuth{
		"padded.test/x": {Username: "a", Password: "b"},
		"plain.test/x":  {Username: "u", Password: "p"},
		"raw.test/x":    {Username: "raw", Password: "x:y"},
		"token.test/x":  {IdentityToken: "idt"},
		"bearer.test/x": {RegistryToken: "rt"},
	} {
		if got := file.index.lookup(repo); len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %+v, want %+v", repo, got, want)
		}
	}
	for _, repo := range []string{"empty.test/x", "bad.test/x", "half.test/x", "shape.test/x"} {
		if got := file.index.lookup(repo); len(got) != 0 {
			t.Errorf("%s: got %+v, want none", repo, got)
		}
	}
	said := strings.Join(file.wrong, "\n")
	for _, want := range []string{"bad.test", "half.test", "shape.test", "credHelpers"} {
		if !strings.Contains(said, want) {
			t.Errorf("problems: got %q, want %s in them", said, want)
		}
	}
	if strings.Contains(said, "secretwithoutcolon") || len(file.wrong) != 4 {
		t.Errorf("problems: got %q, want four without a secret", said)
	}
}

func TestDockerConfigurationIsFoundWhereTheKubeletLooks(t *testing.T) {
	root, work, home := t.TempDir(), t.TempDir(), t.TempDir()
	k := NewKeyring(KeyringConfig{RootDir: root, WorkDir: work, Home: home})
	ask := func(want string) {
		t.Helper()
		got, err := k.Lookup(t.Context(), "reg.test/app:1", &v1.Pod{})
		if err != nil || users(got) != want {
			t.Errorf("got %q (%v), want %q", users(got), err, want)
		}
	}
	entry := func(user string) string { return `{"reg.test": {"auth": "` + b64(user+":x") + `"}}` }
	ask("")
	write(t, home+"/.dockercfg", entry("legacyhome"))
	ask("legacyhome")
	write(t, work+"/.dockercfg", entry("legacywork"))
	ask("legacywork")
	write(t, home+"/.docker/config.json", `{"auths": `+entry("home")+`}`)
	ask("home")
	write(t, work+"/config.json", `{"auths": `+entry("work")+`}`)
	ask("work")
	write(t, root+"/config.json", `{"auths": `+entry("root")+`}`)
	ask("root")
	// Changed, broken, gone: each is seen at the next pull.
	write(t, root+"/config.json", `{"auths": `+entry("changed")+`}`)
	ask("changed")
	write(t, root+"/config.json", `{"auths": `)
	ask("work")
	if p := k.Problems(); len(p) != 1 || p[0].Origin != root+"/config.json" {
		t.Errorf("problems: got %+v, want the broken file", p)
	}
	if err := os.Remove(root + "/config.json"); err != nil {
		t.Fatal(err)
	}
	ask("work")
	if p := k.Problems(); len(p) != 0 {
		t.Errorf("problems: got %+v, want none", p)
	}
	write(t, root+"/config.json", strings.Repeat(" ", maxDockerConfig+1))
	ask("work")
}

func TestHostileDockerConfigurationDoesNotBlock(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("/dev/zero", root+"/config.json"); err != nil {
		t.Fatal(err)
	}
	k := NewKeyring(KeyringConfig{RootDir: root})
	if got, err := k.Lookup(t.Context(), "reg.test/app:1", &v1.Pod{}); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
}

type podNotes []string

func (n *podNotes) Event(_ *v1.Pod, eventType, reason, message string) {
	*n = append(*n, eventType+" "+reason+" "+message)
}

func TestSecretsComeFirstAndAMissingOneIsSaid(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/config.json", `{"auths": {"reg.test": {"auth": "`+b64("node:x")+`"}}}`)
	var events podNotes
	k := NewKeyring(KeyringConfig{RootDir: root, Recorder: &events, Secret: func(_ context.Context, namespace, name string) (*v1.Secret, error) {
		s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		switch name {
		case "new":
			s.Type = v1.SecretTypeDockerConfigJson
			s.Data = map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"reg.test": {"auth": "` + b64("secret:x") + `"}}}`)}
		case "old":
			s.Type = v1.SecretTypeDockercfg
			s.Data = map[string][]byte{v1.DockerConfigKey: []byte(`{"reg.test/app": {"auth": "` + b64("narrow:x") + `"}}`)}
		case "opaque":
			s.Type = v1.SecretTypeOpaque
			s.Data = map[string][]byte{"x": []byte("y")}
		case "broken":
			s.Type = v1.SecretTypeDockerConfigJson
			s.Data = map[string][]byte{v1.DockerConfigJsonKey: []byte(`no JSON`)}
		default:
			return nil, errors.New("not found")
		}
		return s, nil
	}})
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	for _, name := range []string{"new", "gone", "", "old", "lost", "opaque", "broken"} {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
	}
	got, err := k.Lookup(t.Context(), "reg.test/app:1", p)
	if users(got) != "narrow secret node" {
		t.Errorf("got %q, want the narrowest secret's, the other's, the node's", users(got))
	}
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error: got %v, want the broken secret named", err)
	}
	want := []string{"Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (gone, lost); attempting to pull the image may not succeed."}
	if !slices.Equal(events, want) {
		t.Errorf("events: got %q, want %q", events, want)
	}
	events = nil
	k = NewKeyring(KeyringConfig{Recorder: &events})
	if _, err := k.Lookup(t.Context(), "reg.test/app:1", p); err != nil || len(events) != 1 {
		t.Errorf("without Secrets: got %v, events %q", err, events)
	}
}

// plugins makes a directory of plugins and a configuration; each plugin is a
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

// answer is a plugin's response.
func answer(key, auths string) string {
	return fmt.Sprintf(`{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": %q, "auth": %s}`, key, auths)
}

func TestPluginIsAskedOncePerCacheKey(t *testing.T) {
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
					got, err := ps.lookup(t.Context(), repo)
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
	p.keep(now, "reg.test", nil, time.Hour)
	p.keep(now, "never", nil, 0)
	if _, ok := p.cachedFor(now.Add(time.Hour), "x", "reg.test"); !ok {
		t.Error("gone within its time")
	}
	if _, ok := p.cachedFor(now.Add(time.Hour+1), "reg.test"); ok {
		t.Error("there after its time")
	}
	if _, ok := p.cachedFor(now, "never"); ok {
		t.Error("kept an answer with duration 0")
	}
	p.keep(now.Add(2*time.Hour), "other", nil, time.Hour)
	if len(p.cache) != 1 {
		t.Errorf("got %d entries, want the expired one gone", len(p.cache))
	}
}

func TestBadPluginIsSaidAndHurtsNoOther(t *testing.T) {
	good := "cat <<'END'\n" + answer("Image", `{"reg.test": {"username": "good", "password": "p"}}`) + "\nEND\n"
	for name, tc := range map[string]struct{ script, want string }{
		"fails":     {"echo no token >&2; exit 3", "exit status 3; what it said is in podd's log"},
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
			got, err := ps.lookup(t.Context(), "reg.test/x")
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

func TestPluginThatHangsIsGivenUpWithThePull(t *testing.T) {
	cfg := plugins(t, providerHead+aProvider("p", "reg.test"), map[string]string{"p": "exec sleep 3600"})
	ps, err := LoadProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := ps.lookup(ctx, "reg.test/x"); !errors.Is(err, context.DeadlineExceeded) { // long before the plugin ends
		t.Errorf("got %v", err)
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
			got, err := ps.lookup(t.Context(), "reg.test/x")
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
		"program":     {providerHead + aProvider("gone", "x"), "no program"},
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
