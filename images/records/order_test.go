package records

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/pod"
)

// slowly has a Store write files only once goOn is closed, and counts them.
func (d *damaged) slowly() (written *int, goOn chan struct{}) {
	written, goOn = new(int), make(chan struct{})
	d.files.beforeWrite = func(string) error {
		<-goOn
		*written++
		return nil
	}
	return written, goOn
}

// TestASecondPullBeginsWhenTheFirstIsOnDisk: podd may be killed as soon as it has begun.
func TestASecondPullBeginsWhenTheFirstIsOnDisk(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	synctest.Test(t, func(t *testing.T) {
		written, goOn := d.slowly()
		begun := make(chan error, 2)
		for range 2 {
			go func() { begun <- d.RecordPullIntent(image) }()
		}
		synctest.Wait()
		if n := len(begun); n != 0 {
			t.Errorf("%d pulls begin before there is a record", n)
		}
		close(goOn)
		if err := errors.Join(<-begun, <-begun); err != nil || *written != 1 {
			t.Errorf("got %v, and %d records; want one for both", err, *written)
		}
	})
}

// TestTwoNamesOfOneImageArePulledAtOnce: its record has both.
func TestTwoNamesOfOneImageArePulledAtOnce(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	synctest.Test(t, func(t *testing.T) {
		names := []string{"reg.test/team/app:1", "reg.test/other/app:1"}
		for _, name := range names {
			if err := d.RecordPullIntent(name); err != nil {
				t.Fatal(err)
			}
		}
		_, goOn := d.slowly()
		ended := make(chan bool, len(names))
		for _, name := range names {
			go func() { d.RecordImagePulled(name, id, nil); ended <- true }()
			synctest.Wait()
		}
		close(goOn)
		for range names {
			<-ended
		}
		for _, name := range names {
			if !d.MayUse(name, id, having()) {
				t.Errorf("%s: the record does not have it", name)
			}
		}
	})
}

// TestNothingIsWrittenIfNothingChanges: a disk wears out, and each pod asks.
func TestNothingIsWrittenIfNothingChanges(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	a := secret("team", "a", "1", "pass")
	pull(t, d.Store, image, &a)
	written, goOn := d.slowly()
	close(goOn)
	if d.MayUse(image, id, having(a)); *written != 0 {
		t.Errorf("a pod with a known Secret: %d writes", *written)
	}
	if d.MayUse(image, id, having(secret("team", "b", "2", "pass"))); *written != 1 {
		t.Errorf("a pod with another Secret: %d writes, want one", *written)
	}
	d.told("cannot record that a pod has used an image", 0)
	d.told("replacing a record of an image that cannot be read", 0)
	pull(t, d.Store, image, nil) // anybody may use it now
	*written = 0
	for _, by := range []*pod.RegistryAuth{nil, &a} {
		if pull(t, d.Store, image, by); *written != 1 { // that the pull begins
			t.Errorf("a pull of an image for everybody: %d writes, want one", *written)
		}
		*written = 0
	}
}

// TestTheSecretsOfARecordAreSorted, by namespace, name and UID, as the kubelet's.
func TestTheSecretsOfARecordAreSorted(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	for _, s := range []pod.RegistryAuth{secret("b", "a", "1", "p"), secret("a", "b", "1", "p"), secret("a", "a", "2", "p"), secret("a", "a", "1", "p")} {
		pull(t, d.Store, image, &s)
	}
	record, err := d.files.pulledRecord(id)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range record.CredentialMapping["reg.test/team/app"].KubernetesSecrets {
		got = append(got, s.Namespace+"/"+s.Name+"/"+s.UID)
	}
	if want := "a/a/1 a/a/2 a/b/1 b/a/1"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestAnImageOfASecretAndAnAccount: one of the two is enough.
func TestAnImageOfASecretAndAnAccount(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.AlwaysVerify)
	a := secret("team", "a", "1", "pass")
	account := pod.RegistryAuth{Username: "u", Password: "token", Source: pod.CredentialSource{Account: true, Namespace: "team", Name: "builder", UID: "2"}}
	pull(t, d.Store, image, &a)
	pull(t, d.Store, image, &account)
	for name, own := range map[string]pod.RegistryAuth{"the Secret": a, "the account": account} {
		if !d.MayUse(image, id, having(own)) {
			t.Errorf("%s: it may not be used", name)
		}
	}
	if d.MayUse(image, id, having(secret("other", "b", "3", "guess"))) {
		t.Error("another Secret: it may be used")
	}
}

// TestWhatCannotBeReadLetsNobodyIn, also where the policy trusts images that were there before.
func TestWhatCannotBeReadLetsNobodyIn(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(d *damaged)
		want  string
	}{
		"the record is a directory": {func(d *damaged) { d.instead(d.path("pulled", id)) }, "is a directory"},
		"the record is none":        {func(d *damaged) { d.put(d.path("pulled", id), "text") }, "error=\"read "},
		"all records are one file":  {func(d *damaged) { d.put(filepath.Join(d.root, "image_manager", "pulled"), "text") }, "not a directory"},
		"so are all pulls":          {func(d *damaged) { d.put(filepath.Join(d.root, "image_manager", "pulling"), "text") }, "not a directory"},
		"the pull is a directory":   {func(d *damaged) { d.instead(d.path("pulling", image)) }, "is a directory"},
	} {
		d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
		if !d.MayUse(image, id, having()) {
			t.Errorf("%s: before: it may not be used", name)
		}
		c.spoil(d)
		if d.MayUse(image, id, having(secret("team", "a", "1", "pass"))) {
			t.Errorf("%s: it may be used", name)
		}
		d.told("cannot read by whose credentials an image was pulled", 1)
		d.told(c.want, 1)
	}
	// A record that can be read says enough.
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	pull(t, d.Store, image, nil)
	d.instead(d.path("pulling", image))
	if !d.MayUse(image, id, having()) {
		t.Error("with a record, and a pull that cannot be read: it may not be used")
	}
}

// TestFilesUnderAnotherImagesName are of nobody: somebody has copied or renamed them.
func TestFilesUnderAnotherImagesName(t *testing.T) {
	const moved = "reg.test/moved:1"
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	d.put(d.path("pulling", moved), kubeletv1beta1.ImagePullIntent{TypeMeta: meta("ImagePullIntent"), Image: image})
	if got := d.InterruptedPulls(); len(got) > 0 {
		t.Errorf("interrupted: %v, want nothing", got)
	}
	if !d.MayUse(moved, id, having()) {
		t.Error("the image of that name counts as one that podd has pulled")
	}
	d.put(d.path("pulled", "sha256:moved"), kubeletv1beta1.ImagePulledRecord{ImageRef: id})
	d.Prune(nil, time.Now()) // of an image that has no record of its own
	d.told("cannot tidy up", 0)
	d.instead(d.path("pulled", id))
	d.Prune(nil, time.Now())
	d.told("cannot tidy up", 1)
	d.told("is a directory", 1)
}

// TestWhyARecordCannotBeWritten is what the log and the caller get.
func TestWhyARecordCannotBeWritten(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	d.put(filepath.Join(d.root, "image_manager"), "no directory")
	if err := d.RecordPullIntent(image); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("no directory: got %v", err)
	}
	d = newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	d.instead(d.path("pulling", image))
	if err := d.RecordPullIntent(image); err == nil || !strings.Contains(err.Error(), d.path("pulling", image)) {
		t.Errorf("a directory in the file's place: got %v", err)
	}
	if err := d.RecordInterruptedPull(image, id); err == nil || !strings.Contains(err.Error(), "directory not empty") {
		t.Errorf("an arrival whose pull cannot be removed: got %v", err)
	}
	d.instead(d.path("pulled", id))
	if err := d.RecordInterruptedPull(image, id); err == nil || !strings.Contains(err.Error(), d.path("pulled", id)) {
		t.Errorf("one that cannot be recorded: got %v", err)
	}
	d.told("replacing a record of an image that cannot be read", 1)
	for _, err := range []error{d.RecordInterruptedPull("%", id), d.RecordPullIntent("%")} {
		if err != nil && !strings.HasPrefix(err.Error(), `parse image name "%": `) {
			t.Errorf("what is no name: got %v", err)
		}
	}
	if d.RecordInterruptedPull("%", id) == nil {
		t.Error("what is no name has arrived")
	}
	d.RecordImagePulled("%", id, nil)
	d.told("cannot record by whose credentials an image was pulled", 1)

	// A pod may use what it has credentials for, though that cannot be recorded.
	d = newDamaged(t, kubeletv1beta1.AlwaysVerify)
	a := secret("team", "a", "1", "pass")
	pull(t, d.Store, image, &a)
	d.files.beforeWrite = func(string) error { return errors.New("no space left") }
	if !d.MayUse(image, id, having(secret("team", "b", "2", "pass"))) {
		t.Error("it may not be used")
	}
	d.told("cannot record that a pod has used an image", 1)
	d.told("no space left", 1)
}

// TestARecordOfSecondsAgoIsOld: files have seconds only.
func TestARecordOfSecondsAgoIsOld(t *testing.T) {
	for ago, want := range map[time.Duration]bool{0: false, time.Second: true, 3 * time.Second: true} {
		d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(500 * time.Millisecond) // no full second
			a := secret("team", "a", "1", "pass")
			pull(t, d.Store, image, &a)
			time.Sleep(ago)
			d.Prune(nil, time.Now())
			if gone := d.MayUse(image, id, having()); gone != want { // as one that was there before
				t.Errorf("a record of %s ago: removed %t, want %t", ago, gone, want)
			}
		})
	}
}

// TestAnErrorOfTheDirectoryNamesTheFile that an operator has to look at.
func TestAnErrorOfTheDirectoryNamesTheFile(t *testing.T) {
	d := newDamaged(t, kubeletv1beta1.NeverVerifyPreloadedImages)
	broken := d.path("pulling", "reg.test/broken:1")
	d.put(broken, "text")
	d.InterruptedPulls()
	d.told("read "+broken, 1)
}
