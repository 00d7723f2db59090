package credentials

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
	"testing/synctest"
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
	said := strings.Join(file.problems, "\n")
	for _, want := range []string{"bad.test", "half.test", "shape.test", "credHelpers"} {
		if !strings.Contains(said, want) {
			t.Errorf("problems: got %q, want %s in them", said, want)
		}
	}
	if strings.Contains(said, "secretwithoutcolon") || len(file.problems) != 4 {
		t.Errorf("problems: got %q, want four without a secret", said)
	}
}

func TestDockerConfigurationIsFoundWhereTheKubeletSearches(t *testing.T) {
	root, work, home := t.TempDir(), t.TempDir(), t.TempDir()
	k := New(Config{RootDir: root, WorkDir: work, Home: home})
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
	// Changed, broken, gone: the next pull notices each.
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
	k := New(Config{RootDir: root})
	if got, err := k.Lookup(t.Context(), "reg.test/app:1", &v1.Pod{}); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
}

// A Secret of a cluster is followed since its pod came, or podd was restarted: the apiserver
// may not have answered yet, or be away.
func TestAPullWaitsForASecretOfWhichNothingIsKnownYet(t *testing.T) {
	secret := &v1.Secret{Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"reg.test": {"auth": "` + b64("secret:x") + `"}}}`)}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{{Name: "a"}, {Name: "b"}}}}
	for what, c := range map[string]struct {
		after time.Duration // zero: never
		away  bool
		want  string
		took  time.Duration
		told  int
	}{
		"it comes":                  {after: 50 * time.Millisecond, want: "secret secret", took: 50 * time.Millisecond},
		"it comes late":             {after: time.Minute, took: secretTimeout, told: 1},
		"the apiserver is away":     {away: true, told: 1},
		"it does not answer at all": {took: secretTimeout, told: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var events podNotes
			known := make(chan struct{})
			if c.after > 0 {
				time.AfterFunc(c.after, func() { close(known) })
			}
			k := New(Config{Recorder: &events, Secret: func(ctx context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
				if c.away {
					return nil, pod.APIServerUnavailable(errors.New("connection refused"))
				}
				select {
				case <-known:
					return secret, nil
				case <-ctx.Done():
				}
				select {
				case <-known:
					return secret, nil
				default:
					return nil, fmt.Errorf("secret %q is not known yet: %w", name, pod.ErrObjectPending)
				}
			}})
			if auths, unknown := k.PodCredentials("reg.test/app:1", p); len(auths) > 0 || unknown == nil || len(events) > 0 {
				t.Errorf("%s: before, the pod's own are %v (%v), events %q; want none, and that it is not known", what, auths, unknown, events)
			}
			began := time.Now()
			auths, err := k.Lookup(t.Context(), "reg.test/app:1", p)
			took := time.Since(began)
			if k.RecordMissingSecrets("reg.test/app:1", p); err != nil || users(auths) != c.want || took != c.took || len(events) != c.told {
				t.Errorf("%s: got %q (%v) after %v, events %q; want %q after %v, %d events", what, users(auths), err, took, events, c.want, c.took, c.told)
			}
			if c.after > 0 {
				time.Sleep(c.after)
				if auths, unknown := k.PodCredentials("reg.test/app:1", p); users(auths) != "secret secret" || unknown != nil {
					t.Errorf("%s: then the pod's own are %v (%v)", what, auths, unknown)
				}
			}
		})
	}
}

type podNotes []string

func (n *podNotes) Event(_ *v1.Pod, eventType, reason, message string) {
	*n = append(*n, eventType+" "+reason+" "+message)
}

func TestSecretsComeFirstAndAMissingOneIsReported(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/config.json", `{"auths": {"reg.test": {"auth": "`+b64("node:x")+`"}}}`)
	var events podNotes
	k := New(Config{RootDir: root, Recorder: &events, Secret: func(_ context.Context, p *v1.Pod, name string) (*v1.Secret, error) {
		s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}}
		switch name {
		case "new":
			s.Type = v1.SecretTypeDockerConfigJson
			s.Data = map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"reg.test": {"auth": "` + b64("secret:x") + `"}}}`)}
		case "old":
			s.Type = v1.SecretTypeDockercfg
			s.Data = map[string][]byte{v1.DockerConfigKey: []byte(`{"reg.test/app": {"auth": "` + b64("narrow:x") + `"}}`)}
		case "partly":
			s.Type = v1.SecretTypeDockerConfigJson
			s.Data = map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"https://me:topsecret@reg.test": {"auth": "topsecret"}, "reg.test:topsecret": {"username": "topsecret", "password": "topsecret"}, "*": "topsecret"}}`)}
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
	for _, name := range []string{"new", "gone", "", "old", "lost", "opaque", "broken", "partly"} {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
	}
	got, err := k.Lookup(t.Context(), "reg.test/app:1", p)
	if users(got) != "narrow secret node" {
		t.Errorf("got %q, want the narrowest secret's, the other's, the node's", users(got))
	}
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "partly") || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("error: got %v, want the broken Secrets named, and none of their contents", err)
	}
	if len(events) > 0 {
		t.Errorf("before a pull has failed: got events %q", events)
	}
	k.RecordMissingSecrets("reg.test/app:1", p)
	want := []string{"Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (gone, lost); attempting to pull the image may not succeed."}
	if !slices.Equal(events, want) {
		t.Errorf("events: got %q, want %q", events, want)
	}
	events = nil
	k = New(Config{Recorder: &events})
	_, err = k.Lookup(t.Context(), "reg.test/app:1", p)
	if k.RecordMissingSecrets("reg.test/app:1", p); err != nil || len(events) != 1 {
		t.Errorf("without Secrets: got %v, events %q", err, events)
	}
}
