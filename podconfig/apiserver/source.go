package apiserver

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podd/internal/pod"
	"podd/internal/podstore"
	"podd/podconfig"
)

// Lister follows the pods of one node.
type Lister interface {
	// FollowPods calls set with all of a node's pods after each change. While it cannot get
	// them, it calls set with the reason. Calls never overlap. It blocks until ctx ends.
	FollowPods(ctx context.Context, node string, set func(pods []*v1.Pod, err error))
}

// Config configures a Source.
type Config struct {
	Lister   Lister
	NodeName string
	// Server is the apiserver's URL, as users see it.
	Server string
	// StateDir stores the pods for a start without the apiserver; "" for none. Only the Source
	// uses it. It is created when needed.
	StateDir string
	// Log may be nil.
	Log *slog.Logger
}

// startupTimeout is how long a newly started Source waits for the apiserver before it uses the
// stored pods. A booting machine has a network by then, and pods that were deleted meanwhile are
// not started for nothing.
const startupTimeout = 10 * time.Second

// Source implements podconfig.Source.
type Source struct {
	cfg    Config
	log    *slog.Logger
	stored podstore.Store
	// pods holds the last known pods, by UID.
	pods map[pod.UID]*pod.Desired
	// versions holds the resource versions that pods was last compared with. A status that podd
	// writes makes a new version, but changes nothing here.
	versions map[pod.UID]string
	// ready is set once the apiserver has given its whole set. provisional is set while pods
	// are the stored ones.
	ready, provisional bool
	// startupTimeoutElapsed is set once the apiserver has had its time to answer after the
	// start.
	startupTimeoutElapsed bool
	failure               *pod.Problem
	// accessDenied is set if the apiserver does not let this node see its pods; failure has the
	// error.
	accessDenied bool
	// unusable holds the problems of stored files, until the apiserver answers.
	unusable []pod.Problem
	// rejected holds the problems of the apiserver's pods with unusable names.
	rejected map[pod.UID]pod.Problem
	// completed holds the pods that have completed according to the apiserver. lastSaved is the
	// set last given to the saver.
	completed map[pod.UID]bool
	lastSaved map[pod.UID]*pod.Desired
}

// New returns a Source. It requests and reads nothing before Run.
func New(cfg Config) *Source {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Source{
		cfg: cfg, log: log.With("source", pod.SourceAPIServer, "server", cfg.Server),
		stored: podstore.Store{Dir: cfg.StateDir, Durable: true, MaxBytes: maxStoredBytes},
	}
}

// Name returns pod.SourceAPIServer.
func (s *Source) Name() pod.Source { return pod.SourceAPIServer }

// listerUpdate holds the arguments of one call from a Lister.
type listerUpdate struct {
	pods []*v1.Pod
	err  error
}

// Run follows the pods until ctx ends.
func (s *Source) Run(ctx context.Context, out chan<- podconfig.Snapshot) error {
	var work sync.WaitGroup
	defer work.Wait()
	heard := make(chan listerUpdate)
	work.Go(func() {
		s.cfg.Lister.FollowPods(ctx, s.cfg.NodeName, func(pods []*v1.Pod, err error) {
			select {
			case heard <- listerUpdate{pods, err}:
			case <-ctx.Done():
			}
		})
	})
	saver := newSaver(s.stored, s.log)
	if s.cfg.StateDir != "" {
		work.Go(func() { saver.run(ctx) })
	}
	late := time.After(startupTimeout)
	for {
		select {
		case t := <-heard:
			s.applyUpdate(t.pods, t.err, time.Now())
		case <-late:
			if s.startupTimeoutElapsed = true; s.ready {
				continue // the usual case
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		s.useStoredPods(time.Now())
		select {
		case out <- s.snapshot():
		case <-ctx.Done():
			return ctx.Err()
		}
		if set := s.changedPodsToSave(); set != nil {
			saver.enqueue(set)
		}
	}
}

// useStoredPods uses the stored pods if the apiserver does not answer. It does not if the
// apiserver refuses this node: that is an answer, and the node may have been removed from the
// cluster.
func (s *Source) useStoredPods(now time.Time) {
	if s.ready || s.provisional || !s.startupTimeoutElapsed || s.accessDenied {
		return
	}
	var pods []*v1.Pod
	pods, s.unusable = s.readStored()
	s.versions = nil
	s.pods = make(map[pod.UID]*pod.Desired, len(pods))
	for _, p := range pods {
		seen, err := time.Parse(time.RFC3339Nano, p.Annotations[pod.AnnotationSeen])
		if err != nil {
			seen = now
		}
		s.pods[p.UID] = withSourceAnnotations(p, s.cfg.Server, seen)
	}
	for i := range s.unusable {
		s.unusable[i].Since = now
	}
	s.provisional = true
	if s.failure == nil {
		s.setFailure("it has not answered", now)
	}
	s.failure.LastGoodInUse = len(s.pods) > 0
	s.log.Warn("the apiserver does not answer: running the pods that it had given this node", "pods", len(s.pods), "unusable", len(s.unusable))
}

// changedPodsToSave returns the set to save if it has changed. It leaves out pods that have
// completed or are being deleted: they must not run again.
func (s *Source) changedPodsToSave() map[pod.UID]*pod.Desired {
	if !s.ready {
		return nil
	}
	set := maps.Clone(s.pods)
	maps.DeleteFunc(set, func(uid pod.UID, d *pod.Desired) bool { return s.completed[uid] || d.Pod.DeletionTimestamp != nil })
	if s.lastSaved != nil && maps.Equal(set, s.lastSaved) {
		return nil
	}
	s.lastSaved = set
	return set
}

// applyUpdate applies an update from the Lister.
func (s *Source) applyUpdate(pods []*v1.Pod, err error, now time.Time) {
	if err != nil {
		s.accessDenied = apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
		s.setFailure(stableErrorText(err), now)
		return
	}
	if s.failure != nil {
		s.log.Info("the apiserver responds again")
		s.failure = nil
	}
	s.ready, s.provisional, s.accessDenied, s.unusable = true, false, false, nil
	old, versions, rejected := s.pods, s.versions, s.rejected
	s.versions = make(map[pod.UID]string, len(pods))
	s.pods, s.completed = make(map[pod.UID]*pod.Desired, len(pods)), map[pod.UID]bool{}
	s.rejected = map[pod.UID]pod.Problem{}
	for _, p := range pods {
		if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
			continue
		}
		if same := old[p.UID]; same != nil && p.ResourceVersion != "" && versions[p.UID] == p.ResourceVersion {
			s.pods[p.UID] = same
		} else if err := pod.CheckNames(p); err != nil {
			s.reject(p, err, rejected, now)
			continue
		} else {
			s.pods[p.UID] = s.desired(p, same, now)
		}
		s.versions[p.UID] = p.ResourceVersion
		if pod.IsPhaseTerminal(p.Status.Phase) {
			s.completed[p.UID] = true
		}
	}
}

// attemptDetails matches the parts of an error that differ between two attempts that fail alike:
// the number of an HTTP/2 stream, and the local port.
var attemptDetails = regexp.MustCompile(`stream ID \d+; |\[?[0-9a-fA-F.:]+\]?:\d+->`)

// stableErrorText returns the text of an error without these parts: the same failure again is no
// news to a reader of the log.
func stableErrorText(err error) string { return attemptDetails.ReplaceAllString(err.Error(), "") }

// setFailure records why the pods cannot be followed.
func (s *Source) setFailure(why string, now time.Time) {
	if s.failure == nil {
		s.failure = &pod.Problem{Origin: s.cfg.Server, Since: now, LastGoodInUse: len(s.pods) > 0,
			Hint: "check that the apiserver runs, that the kubeconfig's server and certificates are right, and that this node may list and watch its pods"}
	}
	s.failure.Message = "cannot follow the pods of this node: " + why
}

// desired returns the pod in podd's terms. It returns the same pointer if nothing changed but
// the part of the status that podd itself writes, which is most of what a watch shows. The end
// of the pod always counts as a change: somebody else may have written it.
func (s *Source) desired(p *v1.Pod, old *pod.Desired, now time.Time) *pod.Desired {
	if old != nil && (old.Pod.ResourceVersion == p.ResourceVersion || pod.IsPhaseTerminal(old.Pod.Status.Phase) == pod.IsPhaseTerminal(p.Status.Phase) && onlyOwnStatusDiffers(old.Pod, p)) {
		return old
	}
	seen := now
	if old != nil {
		seen = old.Seen
	}
	return withSourceAnnotations(p, s.cfg.Server, seen)
}

// withSourceAnnotations returns a pod with the annotations of its source.
func withSourceAnnotations(p *v1.Pod, server string, seen time.Time) *pod.Desired {
	own := *p // others that follow the pods have p, too
	own.Annotations = maps.Clone(p.Annotations)
	if own.Annotations == nil {
		own.Annotations = map[string]string{}
	}
	own.Annotations[pod.AnnotationSource] = string(pod.SourceAPIServer)
	own.Annotations[pod.AnnotationSeen] = seen.Format(time.RFC3339Nano)
	return &pod.Desired{Pod: &own, Source: pod.SourceAPIServer, Origin: server, Seen: seen}
}

// onlyOwnStatusDiffers reports whether marked, a pod from withSourceAnnotations, and a newer
// version differ only in the status that podd writes.
func onlyOwnStatusDiffers(marked, p *v1.Pod) bool {
	meta := *marked.ObjectMeta.DeepCopy()
	for _, mark := range []string{pod.AnnotationSource, pod.AnnotationSeen} {
		if value, ok := p.Annotations[mark]; ok {
			meta.Annotations[mark] = value
		} else {
			delete(meta.Annotations, mark)
		}
	}
	meta.ResourceVersion, meta.ManagedFields = p.ResourceVersion, p.ManagedFields
	return equality.Semantic.DeepEqual(meta, p.ObjectMeta) && equality.Semantic.DeepEqual(marked.Spec, p.Spec) &&
		equality.Semantic.DeepEqual(foreignStatus(&marked.Status), foreignStatus(&p.Status))
}

// foreignStatus returns the fields of a status that others than the node agent write.
func foreignStatus(s *v1.PodStatus) v1.PodStatus {
	o := v1.PodStatus{NominatedNodeName: s.NominatedNodeName, ResourceClaimStatuses: s.ResourceClaimStatuses, ExtendedResourceClaimStatus: s.ExtendedResourceClaimStatus}
	for _, c := range s.Conditions {
		if !pod.OwnsCondition(c.Type) {
			o.Conditions = append(o.Conditions, c)
		}
	}
	return o
}

func (s *Source) snapshot() podconfig.Snapshot {
	snap := podconfig.Snapshot{Incomplete: !s.ready && !s.provisional, Provisional: s.provisional, Problems: slices.Clone(s.unusable)}
	snap.Problems = append(snap.Problems, s.rejections()...)
	for _, d := range s.pods {
		snap.Pods = append(snap.Pods, d)
	}
	// Sort by creation. If two pods have one name, one is old and being deleted, the other is
	// new.
	slices.SortFunc(snap.Pods, func(a, b *pod.Desired) int {
		return cmp.Or(a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	if s.failure != nil {
		snap.Problems = append(snap.Problems, *s.failure)
	}
	return snap
}
