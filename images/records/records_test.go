package records

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/pod"
)

const (
	image = "reg.test/team/app:1"
	id    = "sha256:aaaa"
)

func newStore(t *testing.T, root string, policy kubeletv1beta1.ImagePullCredentialsVerificationPolicy, allowed ...string) *Store {
	t.Helper()
	p, err := NewPolicy(policy, allowed)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Root: root, Policy: p, Key: slices.Repeat([]byte{7}, 32)})
}

func secret(namespace, name, uid, password string) pod.RegistryAuth {
	return pod.RegistryAuth{Username: "u", Password: password, Source: pod.CredentialSource{Namespace: namespace, Name: name, UID: uid}}
}

func having(auths ...pod.RegistryAuth) func() []pod.RegistryAuth {
	return func() []pod.RegistryAuth { return auths }
}

func pull(t *testing.T, s *Store, image string, by *pod.RegistryAuth) {
	t.Helper()
	if err := s.RecordPullIntent(image); err != nil {
		t.Fatal(err)
	}
	s.RecordImagePulled(image, id, by)
}

func TestWhoMayUseAnImageThatWasPulled(t *testing.T) {
	a := secret("team", "a", "1", "pass")
	node := pod.RegistryAuth{Username: "node", Password: "pass"}
	for name, test := range map[string]struct {
		pulledBy []*pod.RegistryAuth
		image    string
		own      []pod.RegistryAuth
		want     bool
	}{
		"nobody has pulled it: it was there before":    {nil, image, nil, true},
		"without credentials":                          {[]*pod.RegistryAuth{nil}, image, nil, true},
		"with the node's credentials":                  {[]*pod.RegistryAuth{&node}, image, nil, true},
		"with a Secret, by a pod without one":          {[]*pod.RegistryAuth{&a}, image, nil, false},
		"with a Secret, by a pod with the node's only": {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{node}, false},
		"the same Secret":                              {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{a}, true},
		"the same Secret with another password":        {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{secret("team", "a", "1", "new")}, true},
		"another Secret with the same password":        {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{secret("other", "b", "2", "pass")}, true},
		"another Secret with another password":         {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{secret("other", "b", "2", "guess")}, false},
		"a Secret of the same name, made anew":         {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{secret("team", "a", "9", "guess")}, false},
		"the same name in another namespace":           {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{secret("other", "a", "1", "guess")}, false},
		"one of several Secrets":                       {[]*pod.RegistryAuth{&a}, image, []pod.RegistryAuth{secret("other", "b", "2", "guess"), a}, true},
		"another tag of the same image":                {[]*pod.RegistryAuth{&a}, "reg.test/team/app:2", []pod.RegistryAuth{a}, true},
		"the same image by another name":               {[]*pod.RegistryAuth{&a}, "reg.test/other:1", []pod.RegistryAuth{a}, false},
		"a Secret first, then without credentials":     {[]*pod.RegistryAuth{&a, nil}, image, nil, true},
		"without credentials first, then a Secret":     {[]*pod.RegistryAuth{nil, &a}, image, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s := newStore(t, root, kubeletv1beta1.NeverVerifyPreloadedImages)
			for _, by := range test.pulledBy {
				pull(t, s, image, by)
			}
			if got := s.MayUse(test.image, id, having(test.own...)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			// So says the next podd, too.
			if got := newStore(t, root, kubeletv1beta1.NeverVerifyPreloadedImages).MayUse(test.image, id, having(test.own...)); got != test.want {
				t.Errorf("after a restart: got %v, want %v", got, test.want)
			}
			if left, _ := os.ReadDir(filepath.Join(root, "image_manager", "pulling")); len(left) > 0 {
				t.Errorf("left as being pulled: %v", left)
			}
		})
	}
}

func TestForWhichImagesAPolicyAsks(t *testing.T) {
	for _, test := range []struct {
		policy                     kubeletv1beta1.ImagePullCredentialsVerificationPolicy
		allowed                    []string
		there, pulled, otherPulled bool // may a pod without credentials use it?
	}{
		{kubeletv1beta1.NeverVerify, nil, true, true, true},
		{kubeletv1beta1.NeverVerifyPreloadedImages, nil, true, false, false},
		{kubeletv1beta1.AlwaysVerify, nil, false, false, false},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, nil, false, false, false},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/team/app"}, true, true, false},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/*"}, true, true, true},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/team/*"}, true, true, true},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/tea"}, false, false, false},
	} {
		s := newStore(t, t.TempDir(), test.policy, test.allowed...)
		by := secret("team", "a", "1", "pass")
		if got := s.MayUse(image, id, having()); got != test.there {
			t.Errorf("%s %q, an image that was there: got %v", test.policy, test.allowed, got)
		}
		pull(t, s, image, &by)
		pull(t, s, "reg.test/team/other@sha256:"+strings.Repeat("0", 64), &by)
		if got := s.MayUse(image, id, having()); got != test.pulled {
			t.Errorf("%s %q, one that was pulled: got %v", test.policy, test.allowed, got)
		}
		if got := s.MayUse("reg.test/team/other@sha256:"+strings.Repeat("0", 64), id, having()); got != test.otherPulled {
			t.Errorf("%s %q, another: got %v", test.policy, test.allowed, got)
		}
	}
}

func TestAPolicyThatIsNoneIsExplained(t *testing.T) {
	for _, test := range []struct {
		policy  kubeletv1beta1.ImagePullCredentialsVerificationPolicy
		allowed []string
		want    string
	}{
		{"Sometimes", nil, `"Sometimes" is unknown: give NeverVerify, `},
		{kubeletv1beta1.AlwaysVerify, []string{"a/b"}, "only NeverVerifyAllowlistedImages uses"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/a", ""}, "give the name of an image"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{" reg.test/a"}, "spaces"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/a*"}, "only a pattern that ends in /*"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.*/a"}, "only a pattern that ends in /*"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"*"}, "only a pattern that ends in /*"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"/*"}, "name at least the registry"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/a:1"}, "leave out the tag"},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"REG/A"}, "is no name of an image: repository name must be lowercase"},
	} {
		if _, err := NewPolicy(test.policy, test.allowed); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: got %v, want it to say %q", test.policy, test.allowed, err, test.want)
		}
	}
}

// The image is on the disk, podd was killed before it heard so.
func TestAnImageThatArrivedWhilePoddWasKilledIsNobodys(t *testing.T) {
	root := t.TempDir()
	if err := newStore(t, root, kubeletv1beta1.NeverVerifyPreloadedImages).RecordPullIntent(image); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, root, kubeletv1beta1.NeverVerifyPreloadedImages)
	if s.MayUse(image, id, having()) {
		t.Error("an image whose pull was interrupted may be used as if it had been there before")
	}
	if got := s.InterruptedPulls(); !slices.Equal(got, []string{image}) {
		t.Fatalf("interrupted: got %v", got)
	}
	if err := s.RecordInterruptedPull(image, id); err != nil {
		t.Fatal(err)
	}
	if got := s.InterruptedPulls(); len(got) > 0 {
		t.Errorf("interrupted, after it was recorded: got %v", got)
	}
	if s.MayUse("reg.test/another/name:1", id, having(secret("team", "a", "1", "pass"))) {
		t.Error("it may be used by another name")
	}
	a := secret("team", "a", "1", "pass")
	pull(t, s, image, &a)
	if !s.MayUse(image, id, having(a)) {
		t.Error("it may not be used by who has pulled it since")
	}
}

func TestWhileAnImageIsPulledNobodyElseMayUseIt(t *testing.T) {
	s := newStore(t, t.TempDir(), kubeletv1beta1.NeverVerifyPreloadedImages)
	for range 2 {
		if err := s.RecordPullIntent(image); err != nil {
			t.Fatal(err)
		}
	}
	s.RecordImagePullFailed(image)
	if s.MayUse(image, id, having()) {
		t.Error("one of two pulls has failed, and the image counts as one that was there")
	}
	if got := s.InterruptedPulls(); len(got) > 0 {
		t.Errorf("interrupted: got %v, want nothing of what is in progress", got)
	}
	s.RecordImagePullFailed(image)
	if !s.MayUse(image, id, having()) {
		t.Error("both pulls have failed: the image is one that was there before")
	}
}

func TestARecordThatCannotBeReadAsksForCredentials(t *testing.T) {
	root := t.TempDir()
	s := newStore(t, root, kubeletv1beta1.NeverVerifyPreloadedImages)
	pull(t, s, image, nil)
	files, err := filepath.Glob(filepath.Join(root, "image_manager", "pulled", "sha256-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("records: %v %v", files, err)
	}
	for _, content := range []string{"", "{", strings.Repeat("[", 1<<20), `{"credentialMapping": 7}`} {
		if err := os.WriteFile(files[0], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if s.MayUse(image, id, having()) {
			t.Errorf("with a record %.20q the image may be used", content)
		}
	}
	s.Prune(nil, time.Now().Add(time.Hour)) // says so, and does not fail
	pull(t, s, image, nil)
	if !s.MayUse(image, id, having()) {
		t.Error("a pull did not replace the damaged record")
	}
}

// Neither a Secret nor anything to try passwords against is on the disk.
func TestARecordHasNothingOfASecret(t *testing.T) {
	root := t.TempDir()
	policy, _ := NewPolicy(kubeletv1beta1.AlwaysVerify, nil)
	record := func(key byte) (string, kubeletv1beta1.ImagePulledRecord) {
		s := New(Config{Root: root, Policy: policy, Key: slices.Repeat([]byte{key}, 32)})
		a := secret("team", "a", "1", "canary-pass")
		pull(t, s, image, &a)
		files, _ := filepath.Glob(filepath.Join(root, "image_manager", "pulled", "sha256-*"))
		info, err := os.Stat(files[0])
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("got %v %v, want mode 0600", info.Mode(), err)
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var r kubeletv1beta1.ImagePulledRecord
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		return string(data), r
	}
	text, first := record(1)
	if strings.Contains(text, "canary") {
		t.Errorf("the record has the password: %s", text)
	}
	_, second := record(2) // after a reboot there is another key
	a, b := first.CredentialMapping["reg.test/team/app"].KubernetesSecrets, second.CredentialMapping["reg.test/team/app"].KubernetesSecrets
	if len(a) != 1 || len(b) != 1 || a[0].CredentialHash == b[0].CredentialHash || a[0].UID != "1" {
		t.Errorf("got %+v and %+v, want one Secret with hashes by two keys", a, b)
	}
}

func TestRecordsOfImagesThatAreGoneAreRemoved(t *testing.T) {
	s := newStore(t, t.TempDir(), kubeletv1beta1.NeverVerifyPreloadedImages)
	a := secret("team", "a", "1", "pass")
	pull(t, s, image, &a)
	s.Prune(nil, time.Now().Add(-time.Minute))
	if s.MayUse(image, id, having()) {
		t.Error("a record that is newer than the list was removed")
	}
	s.Prune([]string{id}, time.Now().Add(time.Minute))
	if s.MayUse(image, id, having()) {
		t.Error("the record of an image that is there was removed")
	}
	s.Prune([]string{"sha256:bbbb"}, time.Now().Add(time.Minute))
	if !s.MayUse(image, id, having()) {
		t.Error("the record of an image that is gone has stayed")
	}
}

func TestARecordIsBounded(t *testing.T) {
	s := newStore(t, t.TempDir(), kubeletv1beta1.NeverVerifyPreloadedImages)
	a := secret("team", "a", "1", "pass")
	pull(t, s, image, &a)
	for i := range 2 * maxSecrets {
		name := strings.Repeat("n", i+1)
		if !s.MayUse(image, id, having(secret(name, name, name, "pass"))) {
			t.Fatal("a Secret with the same password may not use the image")
		}
	}
	record, err := s.files.pulledRecord(id)
	if err != nil || len(record.CredentialMapping["reg.test/team/app"].KubernetesSecrets) != maxSecrets {
		t.Errorf("got %d Secrets (%v), want %d", len(record.CredentialMapping["reg.test/team/app"].KubernetesSecrets), err, maxSecrets)
	}
}

// TestASlowDiskDelaysNoOtherImage: a durable write may take seconds.
func TestASlowDiskDelaysNoOtherImage(t *testing.T) {
	for name, slow := range map[string]func(s *Store){
		"a pull that begins": func(s *Store) { _ = s.RecordPullIntent("reg.test/slow:1") },
		"a pull that ends": func(s *Store) {
			s.addPulls("reg.test/slow:1", 1)
			s.RecordImagePulled("reg.test/slow:1", "sha256:slow", nil)
		},
	} {
		s := newStore(t, t.TempDir(), kubeletv1beta1.NeverVerifyPreloadedImages)
		writing, goOn := make(chan struct{}), make(chan struct{})
		s.files.beforeWrite = func(key string) error {
			if key == "reg.test/slow:1" || key == "sha256:slow" {
				close(writing)
				<-goOn
			}
			return nil
		}
		ended := make(chan struct{})
		go func() { defer close(ended); slow(s) }()
		<-writing
		others := make(chan struct{})
		go func() {
			defer close(others)
			pull(t, s, image, nil)
			if !s.MayUse(image, id, having()) {
				t.Errorf("%s: another image may not be used", name)
			}
			if s.MayUse("reg.test/slow:1", "sha256:slow", having()) {
				t.Errorf("%s: it may be used before that is recorded", name)
			}
			s.Prune([]string{id}, time.Now())
		}()
		select {
		case <-others:
		case <-time.After(time.Minute):
			t.Errorf("%s: others wait for its disk", name)
		}
		close(goOn)
		<-ended
	}
}
