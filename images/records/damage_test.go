package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

// damaged is a Store whose disk can be spoilt, with its log and its metrics.
type damaged struct {
	*Store
	t    *testing.T
	root string
	log  *bytes.Buffer
	reg  *prometheus.Registry
}

func newDamaged(t *testing.T, policy kubeletv1beta1.ImagePullCredentialsVerificationPolicy) *damaged {
	t.Helper()
	p, err := NewPolicy(policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &damaged{t: t, root: t.TempDir(), log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	d.Store = New(Config{Root: d.root, Policy: p, Log: slog.New(slog.NewTextHandler(d.log, nil)), Registerer: d.reg})
	return d
}

// path is that of the file of an image or ID.
func (d *damaged) path(dir, of string) string {
	return filepath.Join(d.root, "image_manager", dir, checkpoint.Hashed(prefix, sha256.Size).Name(of))
}

// instead puts a directory with something in it where a file should be.
func (d *damaged) instead(path string) {
	d.t.Helper()
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "in the way"), 0o700)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) put(path string, content any) {
	d.t.Helper()
	text, err := json.Marshal(content)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600))
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) told(text string, want int) {
	d.t.Helper()
	if got := strings.Count(d.log.String(), text); got != want {
		d.t.Errorf("%q was told %d times, want %d:\n%s", text, got, want, d.log.String())
	}
}

func TestAPullThatCannotBeRecordedDoesNotBegin(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	if err := os.WriteFile(filepath.Join(d.root, "image_manager"), nil, 0o600); err != nil { // no directory can be there
		t.Fatal(err)
	}
	if err := d.RecordPullIntent(image); err == nil || !strings.HasPrefix(err.Error(), "record that the image is being pulled: ") {
		t.Errorf("got %v", err)
	}
	if n := len(d.activePulls); n != 0 {
		t.Errorf("%d pulls are under way", n)
	}
	if err := os.Remove(filepath.Join(d.root, "image_manager")); err != nil {
		t.Fatal(err)
	}
	if err := d.RecordPullIntent(image); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{d.path("pulling", image): 0o600, filepath.Dir(d.path("pulling", image)): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, want)
		}
	}
	d.instead(d.path("pulled", id))
	d.RecordImagePulled(image, id, nil)
	d.told("cannot record by whose credentials an image was pulled", 1)
	if d.MayUse(image, id, having()) || len(d.activePulls) != 0 {
		t.Errorf("it counts as one that was there before, or as being pulled: %v", d.activePulls)
	}
}

func TestTheEndOfAPullThatCannotBeRecordedIsTold(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	if err := d.RecordPullIntent(image); err != nil {
		t.Fatal(err)
	}
	d.instead(d.path("pulling", image))
	d.RecordImagePullFailed(image)
	d.told("cannot remove the record of a pull that has ended", 1)
	d.told("directory not empty", 1)
	if err := os.RemoveAll(d.path("pulling", image)); err != nil {
		t.Fatal(err)
	}
	if err := d.RecordPullIntent(image); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.path("pulling", image)); err != nil {
		t.Fatal(err)
	}
	d.RecordImagePullFailed(image) // somebody else has removed it, which is as good
	d.told("cannot remove the record of a pull that has ended", 1)
}

// TestWhatLiesBesideRecordsIsNone: files of other names, kinds and contents.
func TestWhatLiesBesideRecordsIsNone(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	if got := d.InterruptedPulls(); len(got) != 0 { // there is no directory
		t.Errorf("interrupted: %v", got)
	}
	intent := kubeletv1beta1.ImagePullIntent{TypeMeta: meta("ImagePullIntent"), Image: image}
	d.put(d.path("pulling", image), intent)
	for i, other := range []string{"notes.txt", prefix + "short", "md5----" + strings.Repeat("0", 64)} {
		d.put(filepath.Join(d.root, "image_manager", "pulling", other), kubeletv1beta1.ImagePullIntent{Image: "reg.test/other:" + string(rune('a'+i))})
	}
	d.put(d.path("pulling", "reg.test/moved:1"), intent) // of another image than its name says
	d.put(d.path("pulling", "reg.test/empty:1"), kubeletv1beta1.ImagePullIntent{})
	if err := os.MkdirAll(d.path("pulling", "reg.test/directory:1"), 0o700); err != nil {
		t.Fatal(err)
	}
	got := d.InterruptedPulls()
	for _, of := range got {
		if of != image {
			t.Errorf("interrupted: %v", got)
		}
	}
	if len(got) == 0 {
		t.Error("the pull that was interrupted is not found")
	}
	d.told("cannot read", 0)

	d.put(d.path("pulling", "reg.test/broken:1"), "text")
	if len(d.InterruptedPulls()) == 0 {
		t.Error("beside a broken file the pull is not found")
	}
	d.told("cannot read which images were being pulled", 1)

	// A record of another image than its name says is none.
	d.put(d.path("pulled", id), kubeletv1beta1.ImagePulledRecord{ImageRef: "sha256:other", CredentialMapping: map[string]kubeletv1beta1.ImagePullCredentials{
		"reg.test/team/app": {NodePodsAccessible: true}}})
	if d.MayUse(image, id, having()) {
		t.Error("another image's record lets anybody use it")
	}
}

func TestADirectoryThatCannotBeReadIsTold(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	for _, dir := range []string{"pulling", "pulled"} {
		d.put(filepath.Join(d.root, "image_manager", dir), "no directory")
	}
	d.InterruptedPulls()
	d.told("cannot read which images were being pulled", 1)
	d.Prune(nil, time.Now())
	d.told("cannot tidy up the records of pulled images", 1)
	if err := d.RecordInterruptedPull(image, id); err == nil {
		t.Error("an arrival that cannot be recorded is no error")
	}
}

// TestEachCheckIsCounted by its result, as the kubelet's.
func TestEachCheckIsCounted(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	a := secret("team", "a", "1", "pass")
	d.MayUse(image, id, having())
	pull(t, d.Store, image, &a)
	d.MayUse(image, id, having())
	d.MayUse(image, id, having(secret("other", "b", "2", "guess")))
	d.MayUse(image, id, having(a))
	d.MayUse(image, id, having(a))
	d.MayUse(image, id, having(a))
	d.MayUse("%", id, having(a)) // no name of an image
	want := `
# HELP kubelet_imagemanager_image_mustpull_checks_total Counter for how many times kubelet checked whether credentials need to be re-verified to access an image
# TYPE kubelet_imagemanager_image_mustpull_checks_total counter
kubelet_imagemanager_image_mustpull_checks_total{result="credentialPolicyAllowed"} 1
kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"} 3
kubelet_imagemanager_image_mustpull_checks_total{result="error"} 1
kubelet_imagemanager_image_mustpull_checks_total{result="mustAuthenticate"} 2
`
	if err := testutil.GatherAndCompare(d.reg, strings.NewReader(want), "kubelet_imagemanager_image_mustpull_checks_total"); err != nil {
		t.Error(err)
	}
	pull(t, d.Store, image, nil)
	d.instead(d.path("pulled", id))
	if d.MayUse(image, id, having(a)) {
		t.Error("without a record that can be read it may be used")
	}
	d.told("pods must show theirs", 1)
}

// TestAnImageOfAServiceAccount: its pods may use it, whatever their Secrets are, and nobody
// else; the record has the account and no hash.
func TestAnImageOfAServiceAccount(t *testing.T) {
	account := func(namespace, name, uid string) pod.RegistryAuth {
		return pod.RegistryAuth{Username: "u", Password: "pass", Source: pod.CredentialSource{Account: true, Namespace: namespace, Name: name, UID: uid}}
	}
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	first, second := account("team", "builder", "1"), account("team", "tester", "2")
	pull(t, d.Store, image, &first)
	for what, c := range map[string]struct {
		own  []pod.RegistryAuth
		want bool
	}{
		"its own":                                {[]pod.RegistryAuth{first}, true},
		"another, then its own":                  {[]pod.RegistryAuth{second, first}, true},
		"another account with the same password": {[]pod.RegistryAuth{second}, false},
		"one of that name, made anew":            {[]pod.RegistryAuth{account("team", "builder", "9")}, false},
		"one of that name in another namespace":  {[]pod.RegistryAuth{account("other", "builder", "1")}, false},
		"a Secret of its name, UID and password": {[]pod.RegistryAuth{secret("team", "builder", "1", "pass")}, false},
		"nothing":                                {nil, false},
		"the node's credentials":                 {[]pod.RegistryAuth{{Username: "u", Password: "pass"}}, false},
	} {
		if got := d.MayUse(image, id, having(c.own...)); got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
	pull(t, d.Store, image, &second)
	a := secret("team", "a", "1", "pass")
	pull(t, d.Store, image, &a)
	pull(t, d.Store, image, &second) // known already
	record, err := d.files.pulledRecord(id)
	if err != nil {
		t.Fatal(err)
	}
	known := record.CredentialMapping["reg.test/team/app"]
	want := []kubeletv1beta1.ImagePullServiceAccount{{Namespace: "team", Name: "builder", UID: "1"}, {Namespace: "team", Name: "tester", UID: "2"}}
	if len(known.KubernetesServiceAccounts) != 2 || known.KubernetesServiceAccounts[0] != want[0] || known.KubernetesServiceAccounts[1] != want[1] || len(known.KubernetesSecrets) != 1 || known.NodePodsAccessible {
		t.Errorf("the record has %+v", known)
	}
}

// TestWithoutAKeyHashesAreOfOnePodd: after its restart only a Secret of the same name counts.
func TestWithoutAKeyHashesAreOfOnePodd(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	a, renamed := secret("team", "a", "1", "pass"), secret("team", "b", "2", "pass")
	pull(t, d.Store, image, &a)
	if !d.MayUse(image, id, having(secret("team", "c", "3", "pass"))) { // and has it by name now
		t.Error("this podd does not find the Secret by its hash")
	}
	policy, _ := NewPolicy(kubeletv1beta1.AlwaysVerify, nil)
	later := New(Config{Root: d.root, Policy: policy})
	if later.MayUse(image, id, having(renamed)) || !later.MayUse(image, id, having(a)) {
		t.Error("the next podd finds the Secret by its hash, or not by its name")
	}
}

func TestNamesWithoutTheirTags(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]string{
		"reg.test/team/app:1": "reg.test/team/app", "reg.test:5000/app": "reg.test:5000/app", "reg.test:5000/app:1": "reg.test:5000/app",
		"reg.test/app" + digest: "reg.test/app", "reg.test/app:1" + digest: "reg.test/app",
	} {
		if got, err := withoutTag(image); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", image, got, err, want)
		}
	}
	if got, err := withoutTag("%"); err == nil {
		t.Errorf("got %q", got)
	}
	p, err := NewPolicy(kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"reg.test/*"})
	if err != nil || !p.mustVerify("%", true) {
		t.Errorf("what is no name is not allowed: %v", err)
	}
	if p.mustVerify("reg.test/%", true) {
		t.Error("what is no name is not allowed by the beginning of it")
	}
}

// TestFilesOnDiskAreCounted at each scrape, with what another podd has left.
func TestFilesOnDiskAreCounted(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	expect := func(when string, intents, records int) {
		t.Helper()
		want := fmt.Sprintf(`# HELP kubelet_imagemanager_ondisk_pulledrecords Number of ImagePulledRecords stored on disk.
# TYPE kubelet_imagemanager_ondisk_pulledrecords gauge
kubelet_imagemanager_ondisk_pulledrecords %d
# HELP kubelet_imagemanager_ondisk_pullintents Number of ImagePullIntents stored on disk.
# TYPE kubelet_imagemanager_ondisk_pullintents gauge
kubelet_imagemanager_ondisk_pullintents %d
`, records, intents)
		if err := testutil.GatherAndCompare(d.reg, strings.NewReader(want), "kubelet_imagemanager_ondisk_pulledrecords", "kubelet_imagemanager_ondisk_pullintents"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("nothing was pulled", 0, 0)
	for _, image := range []string{"a", "b"} {
		if err := d.RecordPullIntent(image); err != nil {
			t.Fatal(err)
		}
	}
	expect("two are being pulled", 2, 0)
	d.RecordImagePulled("a", "sha256:1", nil)
	d.RecordImagePullFailed("b")
	expect("one is there, one failed", 0, 1)
}
