package records

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/keylock"
	"podd/internal/pod"
)

// maxSecrets is the number of Secrets up to which a record also takes those of pods that
// did not need to pull (the kubelet's limit). Each pull may add one.
const maxSecrets = 100

// Config configures a Store; Log and Registerer may be nil.
type Config struct {
	// Root is podd's root directory.
	Root   string
	Policy Policy
	// Key makes hashes of credentials comparable with those of an earlier podd of this
	// boot. Without it, the Store makes one for this podd alone: then the only loss is that
	// a Secret that was renamed must be shown to the registry again.
	Key        []byte
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Store keeps the records of a node. It is safe for concurrent use. Its methods block only
// for small files of the same image.
type Store struct {
	cfg    Config
	files  files
	checks *prometheus.CounterVec

	// nameLocks and idLocks serialize the work on the files of one image, by name and by ID:
	// a slow disk delays nobody else. A caller that needs both takes the one by name first.
	nameLocks, idLocks keylock.Locks[string]

	mu sync.Mutex
	// activePulls counts the pulls of each image that this podd has begun. It is never 0 while
	// there is a file of such a pull, unless the record could not be written.
	activePulls map[string]int
}

// lockKey waits for a lock, as long as it takes, because a write to a disk cannot be given up.
func lockKey(l *keylock.Locks[string], key string) (release func()) {
	release, _ = l.Lock(context.Background(), key)
	return release
}

// addPulls adds to the pulls of an image, and returns their number.
func (s *Store) addPulls(image string, more int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.activePulls[image] + more
	if s.activePulls[image] = n; n <= 0 {
		delete(s.activePulls, image)
	}
	return n
}

// New returns a Store; it reads nothing yet.
func New(cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Key) == 0 {
		cfg.Key = newKey()
	}
	s := &Store{
		cfg: cfg, files: newFiles(cfg.Root), activePulls: map[string]int{},
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_imagemanager_image_mustpull_checks_total",
			Help: "Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
		}, []string{"result"}),
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(s.checks,
			onDisk("kubelet_imagemanager_ondisk_pullintents", "Number of ImagePullIntents stored on disk.", s.files.intents.Path),
			onDisk("kubelet_imagemanager_ondisk_pulledrecords", "Number of ImagePulledRecords stored on disk.", s.files.records.Path))
	}
	return s
}

// onDisk counts the files of a directory at each scrape. There is about one for each image.
func onDisk(name, help, dir string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return 0 // nothing was pulled yet
		}
		count := 0
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix) {
				count++
			}
		}
		return float64(count)
	})
}

// RecordPullIntent records that a pull of the image begins, by the name that the runtime
// gets. Each call is followed by one of RecordImagePulled or RecordImagePullFailed. After an
// error the pull must not begin: nobody would know afterwards that podd had pulled the image.
func (s *Store) RecordPullIntent(image string) error {
	defer lockKey(&s.nameLocks, image)()
	if s.addPulls(image, 1) > 1 {
		return nil
	}
	if err := write(s.files, s.files.intents, image, kubeletv1beta1.ImagePullIntent{TypeMeta: meta("ImagePullIntent"), Image: image}); err != nil {
		s.addPulls(image, -1)
		return fmt.Errorf("record that the image is being pulled: %w", err)
	}
	return nil
}

// RecordImagePulled records that a pull has ended with the image of this ID, by these
// credentials; nil for none. Credentials without a Source are the node's: then every pod may
// use the image.
func (s *Store) RecordImagePulled(image, id string, by *pod.RegistryAuth) {
	defer lockKey(&s.nameLocks, image)()
	if err := s.addCredentials(image, id, s.recordedCredentials(by)); err != nil {
		// The file of the pull stays, so that the image does not count as one that was
		// there before.
		s.cfg.Log.Warn("cannot record by whose credentials an image was pulled: pods must show theirs", "image", image, "error", err)
		s.addPulls(image, -1)
		return
	}
	s.endPull(image)
}

// RecordImagePullFailed records that a pull has ended without the image.
func (s *Store) RecordImagePullFailed(image string) {
	defer lockKey(&s.nameLocks, image)()
	s.endPull(image)
}

// endPull removes the file of an image's last pull. The image's lock is held.
func (s *Store) endPull(image string) {
	if s.addPulls(image, 0) == 1 {
		if err := s.files.intents.File(image).Remove(); err != nil {
			s.cfg.Log.Warn("cannot remove the record of a pull that has ended", "image", image, "error", err)
		}
	}
	s.addPulls(image, -1)
}

// InterruptedPulls returns the images with pulls that an earlier podd began but did not see end.
func (s *Store) InterruptedPulls() []string {
	var begun, out []string
	err := list(s.files.intents, func(i kubeletv1beta1.ImagePullIntent) {
		if i.Image != "" {
			begun = append(begun, i.Image)
		}
	})
	for _, image := range begun {
		if s.isInterrupted(image) {
			out = append(out, image)
		}
	}
	if err != nil {
		s.cfg.Log.Warn("cannot read which images were being pulled when podd ended", "error", err)
	}
	return out
}

// isInterrupted looks again, with the lock: a pull of this podd may have ended meanwhile.
func (s *Store) isInterrupted(image string) bool {
	defer lockKey(&s.nameLocks, image)()
	there, err := s.files.hasIntent(image)
	return there && err == nil && s.addPulls(image, 0) == 0
}

// RecordInterruptedPull records that an interrupted pull did end with the image of this ID:
// podd has pulled it, but the credentials are unknown.
func (s *Store) RecordInterruptedPull(image, id string) error {
	defer lockKey(&s.nameLocks, image)()
	if err := s.addCredentials(image, id, nil); err != nil {
		return err
	}
	if s.addPulls(image, 0) > 0 {
		return nil // being pulled again
	}
	return s.files.intents.File(image).Remove()
}

// MayUse reports whether a pod may use an image that is on the node, without pulling it again.
// It may if the policy does not ask, or if a pull has succeeded with the node's credentials
// or without any, for the pod's service account, or with a Secret that is the pod's too:
// one of the same name and UID, or with the same credentials. own returns the pod's
// credentials; it is called only if they matter.
func (s *Store) MayUse(image, id string, own func() []pod.RegistryAuth) bool {
	result := s.checkAccess(image, id, own)
	s.checks.WithLabelValues(result).Inc()
	return result == policyAllows || result == recordFound
}

// Results of checks, as in the kubelet's metric.
const (
	policyAllows     = "credentialPolicyAllowed"
	recordFound      = "credentialRecordFound"
	mustAuthenticate = "mustAuthenticate"
	checkFailed      = "error"
)

func (s *Store) checkAccess(image, id string, own func() []pod.RegistryAuth) string {
	if s.cfg.Policy.neverVerify {
		return policyAllows
	}
	record, begun, err := s.lookup(image, id)
	if err != nil {
		s.cfg.Log.Warn("cannot read by whose credentials an image was pulled: pods must show theirs", "image", image, "error", err)
		return checkFailed
	}
	if !s.cfg.Policy.mustVerify(image, begun) {
		return policyAllows
	}
	if record == nil {
		return mustAuthenticate
	}
	named, err := withoutTag(image)
	if err != nil {
		return checkFailed
	}
	known := record.CredentialMapping[named]
	switch {
	case known.NodePodsAccessible:
		return recordFound
	case len(known.KubernetesSecrets)+len(known.KubernetesServiceAccounts) == 0:
		return mustAuthenticate
	}
	auths := own()
	for i := range auths {
		mine := s.recordedCredentials(&auths[i])
		if !matches(&known, mine) {
			continue
		}
		if len(known.KubernetesSecrets) < maxSecrets {
			if err := s.addCredentials(image, id, mine); err != nil {
				s.cfg.Log.Warn("cannot record that a pod has used an image", "image", image, "error", err)
			}
		}
		return recordFound
	}
	return mustAuthenticate
}

// lookup returns the record of an image, and whether podd has pulled it or begun to. It looks
// for the pull first: when a pull ends, it writes the record before it removes its own
// file, so one of the two is always seen.
func (s *Store) lookup(image, id string) (record *kubeletv1beta1.ImagePulledRecord, begun bool, err error) {
	var unread error
	if begun = s.addPulls(image, 0) > 0; !begun {
		begun, unread = s.files.hasIntent(image)
	}
	record, err = s.files.pulledRecord(id)
	if err == nil && record == nil {
		err = unread
	}
	return record, begun || record != nil, err
}

// matches reports whether credentials belong to a known service account or a known Secret,
// or equal those of one. A Secret still counts after its content has changed: the registry
// knows the same owner (KEP-2535).
func matches(known, mine *kubeletv1beta1.ImagePullCredentials) bool {
	for _, account := range mine.KubernetesServiceAccounts {
		if slices.Contains(known.KubernetesServiceAccounts, account) {
			return true
		}
	}
	for _, s := range mine.KubernetesSecrets {
		if slices.ContainsFunc(known.KubernetesSecrets, func(k kubeletv1beta1.ImagePullSecret) bool {
			return sameSecret(k, s) || k.CredentialHash != "" && k.CredentialHash == s.CredentialHash
		}) {
			return true
		}
	}
	return false
}

func sameSecret(a, b kubeletv1beta1.ImagePullSecret) bool { return bySecret(a, b) == 0 }

func bySecret(a, b kubeletv1beta1.ImagePullSecret) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// recordedCredentials returns the part of credentials that a record holds.
func (s *Store) recordedCredentials(auth *pod.RegistryAuth) *kubeletv1beta1.ImagePullCredentials {
	if auth == nil || auth.Source == (pod.CredentialSource{}) {
		return &kubeletv1beta1.ImagePullCredentials{NodePodsAccessible: true}
	}
	from := auth.Source
	if from.Account {
		return &kubeletv1beta1.ImagePullCredentials{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{{
			UID: from.UID, Namespace: from.Namespace, Name: from.Name,
		}}}
	}
	return &kubeletv1beta1.ImagePullCredentials{KubernetesSecrets: []kubeletv1beta1.ImagePullSecret{{
		UID: from.UID, Namespace: from.Namespace, Name: from.Name, CredentialHash: s.hash(*auth),
	}}}
}

func (s *Store) hash(auth pod.RegistryAuth) string {
	auth.Source = pod.CredentialSource{}
	content, err := json.Marshal(auth)
	if err != nil { // of strings: cannot happen
		return ""
	}
	mac := hmac.New(sha256.New, s.cfg.Key)
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil))
}

// addCredentials adds credentials to the record of an image, under the name by which a pod
// has it. nil adds none, and makes the record if there is none. It writes nothing if nothing
// changes.
func (s *Store) addCredentials(image, id string, by *kubeletv1beta1.ImagePullCredentials) error {
	defer lockKey(&s.idLocks, id)()
	named, err := withoutTag(image)
	if err != nil {
		return fmt.Errorf("parse image name %q: %w", image, err)
	}
	record, err := s.files.pulledRecord(id)
	if err != nil {
		s.cfg.Log.Warn("replacing a record of an image that cannot be read", "image", image, "error", err)
	}
	changed := record == nil
	if record == nil {
		record = &kubeletv1beta1.ImagePulledRecord{TypeMeta: meta("ImagePulledRecord"), ImageRef: id}
	}
	if by != nil {
		merged, grown := mergeCredentials(record.CredentialMapping[named], *by)
		if grown {
			if record.CredentialMapping == nil {
				record.CredentialMapping = map[string]kubeletv1beta1.ImagePullCredentials{}
			}
			record.CredentialMapping[named], changed = merged, true
		}
	}
	if !changed {
		return nil
	}
	record.LastUpdatedTime = metav1.NewTime(time.Now())
	return write(s.files, s.files.records, id, *record)
}

// mergeCredentials adds credentials to known ones, and reports whether that changed them.
func mergeCredentials(known, more kubeletv1beta1.ImagePullCredentials) (kubeletv1beta1.ImagePullCredentials, bool) {
	if known.NodePodsAccessible {
		return known, false
	}
	if more.NodePodsAccessible {
		return kubeletv1beta1.ImagePullCredentials{NodePodsAccessible: true}, true
	}
	secrets, changed := slices.Clone(known.KubernetesSecrets), false
	for _, s := range more.KubernetesSecrets {
		if slices.Contains(secrets, s) {
			continue
		}
		secrets = append(slices.DeleteFunc(secrets, func(k kubeletv1beta1.ImagePullSecret) bool { return sameSecret(k, s) }), s)
		changed = true
	}
	slices.SortFunc(secrets, bySecret)
	known.KubernetesSecrets = secrets
	for _, a := range more.KubernetesServiceAccounts {
		if !slices.Contains(known.KubernetesServiceAccounts, a) {
			known.KubernetesServiceAccounts = append(slices.Clone(known.KubernetesServiceAccounts), a)
			changed = true
		}
	}
	return known, changed
}

// Prune removes the records of images that the runtime does not have; ids are the images
// that it had at began or later. Newer records stay.
func (s *Store) Prune(ids []string, began time.Time) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	old := func(r *kubeletv1beta1.ImagePulledRecord) bool {
		return !there[r.ImageRef] && r.LastUpdatedTime.Time.Before(began.Truncate(time.Second)) // the file has seconds only
	}
	var gone []string
	err := list(s.files.records, func(r kubeletv1beta1.ImagePulledRecord) {
		if old(&r) {
			gone = append(gone, r.ImageRef)
		}
	})
	for _, id := range gone {
		err = errors.Join(err, s.removeStale(id, old))
	}
	if err != nil {
		s.cfg.Log.Warn("cannot tidy up the records of pulled images", "error", err)
	}
}

// removeStale removes a record that is still old.
func (s *Store) removeStale(id string, old func(*kubeletv1beta1.ImagePulledRecord) bool) error {
	defer lockKey(&s.idLocks, id)()
	record, err := s.files.pulledRecord(id)
	if err != nil || record == nil || !old(record) {
		return err
	}
	return s.files.records.File(id).Remove()
}

func newKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return key
}
