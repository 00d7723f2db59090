package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// issuer answers for every source alike.
type issuer struct {
	mu         sync.Mutex
	key, chain string
	err        error
	asked      []string
}

func (i *issuer) Credential(p *v1.Pod, volume string, source int, s *v1.PodCertificateProjection) (key, chain []byte, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, fmt.Sprintf("%s %s/%d of %s", p.UID, volume, source, s.SignerName))
	return []byte(i.key), []byte(i.chain), i.err
}

func (i *issuer) set(key, chain string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.chain, i.err = key, chain, err
}

func (i *issuer) into(o *Options) { o.PodCertificates = i }

func partCertificate(of v1.PodCertificateProjection) v1.VolumeProjection {
	of.SignerName = "example.com/mesh"
	return v1.VolumeProjection{PodCertificate: &of}
}

func TestAPodCertificateIsABundleOrTwoFiles(t *testing.T) {
	i := &issuer{key: "KEY\n", chain: "LEAF\nAUTHORITY\n"}
	m := newMounter(t, newStore(aConfigMap("app", "a", "1")).into, i.into)
	both := []v1.VolumeProjection{
		partConfigMap("app"),
		partCertificate(v1.PodCertificateProjection{CredentialBundlePath: "bundle.pem"}),
		partCertificate(v1.PodCertificateProjection{KeyPath: "tls/key.pem", CertificateChainPath: "tls/chain.pem"}),
	}
	mustSetUp(t, m, aPod("u1", projected("v", both...)))
	dir := volumeDir(m, "u1", "projected", "v")
	mustHold(t, dir, map[string]string{"a": "1", "bundle.pem": "KEY\nLEAF\nAUTHORITY\n", "tls/key.pem": "KEY\n", "tls/chain.pem": "LEAF\nAUTHORITY\n"})
	mustHaveMode(t, dir+"/tls/key.pem", 0o644)
	if want := "u1 v/1 of example.com/mesh,u1 v/2 of example.com/mesh"; strings.Join(i.asked, ",") != want {
		t.Errorf("asked for %q, want %q", i.asked, want)
	}
	// One user of all containers: the files are that user's alone, as a token is.
	p := aPod("u2", projected("v", both...))
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000))}
	mustSetUp(t, m, p)
	for _, file := range []string{"bundle.pem", "tls/key.pem", "tls/chain.pem"} {
		mustHaveMode(t, filepath.Join(volumeDir(m, "u2", "projected", "v"), file), 0o600)
	}
	mustHaveMode(t, filepath.Join(volumeDir(m, "u2", "projected", "v"), "a"), 0o644)
	if i.key != "KEY\n" || i.chain != "LEAF\nAUTHORITY\n" {
		t.Error("what the issuer returned was changed")
	}
}

// A reader that opens both files through one directory never sees a key with another's
// certificates.
func TestAKeyAndItsCertificatesAreReplacedInOneStep(t *testing.T) {
	i := &issuer{key: "key 0", chain: "chain 0"}
	m := newMounter(t, newStore().into, i.into)
	mustSetUp(t, m, aPod("u1", projected("v", partCertificate(v1.PodCertificateProjection{KeyPath: "key", CertificateChainPath: "chain"}))))
	dir := volumeDir(m, "u1", "projected", "v")
	for n := 1; n < 30; n++ {
		before, err := os.Readlink(filepath.Join(dir, "..data"))
		if err != nil {
			t.Fatal(err)
		}
		old, err := os.Open(filepath.Join(dir, before, "chain"))
		if err != nil {
			t.Fatal(err)
		}
		i.set(fmt.Sprint("key ", n), fmt.Sprint("chain ", n), nil)
		mustFollow(t, m, "u1")
		mustHold(t, dir, map[string]string{"key": fmt.Sprint("key ", n), "chain": fmt.Sprint("chain ", n)})
		after, err := os.Readlink(filepath.Join(dir, "..data"))
		var text bytes.Buffer
		if _, readErr := text.ReadFrom(old); err != nil || readErr != nil || after == before || text.String() != fmt.Sprint("chain ", n-1) {
			t.Errorf("%d: files were changed in their place: %q, %v", n, text.String(), errors.Join(err, readErr))
		}
		_ = old.Close()
	}
}

// waiting is how an issuer says that the signer has not answered yet.
type waiting struct{ error }

func (waiting) Unwrap() error        { return pod.ErrObjectPending }
func (waiting) Is(target error) bool { return target == pod.ErrAPIServerUnavailable }

func TestACertificateThatIsNotIssuedYetIsAwaitedAndItsReasonTold(t *testing.T) {
	dir, i := tempDir(t), &issuer{err: waiting{errors.New("the signer has not answered")}}
	part := partCertificate(v1.PodCertificateProjection{CredentialBundlePath: "bundle"})
	root := func(o *Options) { o.RootDir = dir }
	p := aPod("u1", projected("v", part))
	m := newMounter(t, newStore().into, i.into, root)
	err := ensure(t, m, p)
	mustSay(t, err, `MountVolume.SetUp failed for volume "v" : the signer has not answered`)
	if pod.ReasonOf(err, "") != "FailedMount" || !errors.Is(err, pod.ErrObjectPending) {
		t.Errorf("got %v with reason %q", err, pod.ReasonOf(err, ""))
	}
	i.set("KEY", "LEAF", nil)
	mustSetUp(t, m, p)
	file := filepath.Join(volumeDir(m, "u1", "projected", "v"), "bundle")
	mustBe(t, file, "KEYLEAF")

	// A podd that was restarted has no keys. Containers start with the files that are there.
	i.set("", "", waiting{errors.New("the signer has not answered")})
	m = newMounter(t, newStore().into, i.into, root)
	mustSetUp(t, m, p)
	mustBe(t, file, "KEYLEAF")
	i.set("OTHER", "LEAF2", nil)
	mustFollow(t, m, "u1")
	mustBe(t, file, "OTHERLEAF2")
}

func TestAVolumeKeepsItsCertificateWhenTheNextOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, s := &issuer{key: "KEY", chain: "LEAF"}, newStore()
		m := newMounter(t, s.into, i.into)
		mustBeReady(t, m, aPod("u1", projected("v", partCertificate(v1.PodCertificateProjection{CredentialBundlePath: "bundle"}))))
		i.set("", "", errors.New(`PodCertificateRequest "req-2" was permanently denied`))
		m.Changed("u1")
		synctest.Wait()
		mustHold(t, volumeDir(m, "u1", "projected", "v"), map[string]string{"bundle": "KEYLEAF"})
		if told := s.told(); len(told) != 1 || !strings.Contains(told[0], "FailedMount") || !strings.Contains(told[0], `"req-2" was permanently denied`) {
			t.Errorf("got the events %q", told)
		}
	})
}
