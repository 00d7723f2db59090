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
	// FollowPods calls set with all of a node's pods after each change, and with the
	// reason while they cannot be had. Calls never overlap. It blocks until ctx ends.
	FollowPods(ctx context.Context, node string, set func(pods []*v1.Pod, err error))
}

// Config is what a Source is made of.
type Config struct {
	Lister   Lister
	NodeName string
	// Server is the apiserver's URL, as users see it.
	Server string
	// StateDir keeps the pods for a start without the apiserver; "" for none. It is the
	// Source's alone, and made when needed.
	StateDir string
	// Log may be nil.
	Log *slog.Logger
}

// silence is how long a Source that was just started waits for the apiserver before it
// turns to the stored pods: a machine that boots has a network by then, and what was
// deleted meanwhile is not started for nothing.
const silence = 10 * time.Second

// Source implements podconfig.Source.
type Source struct {
	cfg    Config
	log    *slog.Logger
	stored podstore.Store
	// pods are the last known, by UID.
	pods map[pod.UID]*pod.Desired
	// versions are the resource versions that these were compared with last: what podd
	// writes of a status makes another one, of which nothing here changes.
	versions map[pod.UID]string
	// ready: the apiserver has given its whole set. provisional: pods are the stored ones.
	ready, provisional bool
	// startupTimeoutElapsed: the apiserver has had its time to answer after the start.
	startupTimeoutElapsed bool
	failure               *pod.Problem
	// refused: failure is that this node may not know its pods.
	refused bool
	// unusable are the problems of stored files, until the apiserver answers.
	unusable []pod.Problem
	// rejected are the problems of the apiserver's pods whose names are unusable.
	rejected map[pod.UID]pod.Problem
	// over are the pods that have ended according to the apiserver; kept is what was last
	// passed to be stored.
	over map[pod.UID]bool
	kept map[pod.UID]*pod.Desired
}

// New makes a Source; nothing is requested or read before Run.
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

// Name is pod.SourceAPIServer.
func (s *Source) Name() pod.Source { return pod.SourceAPIServer }

// told is one call of a Lister.
type told struct {
	pods []*v1.Pod
	err  error
}

// Run follows the pods until ctx ends.
func (s *Source) Run(ctx context.Context, out chan<- podconfig.Snapshot) error {
	var work sync.WaitGroup
	defer work.Wait()
	heard := make(chan told)
	work.Go(func() {
		s.cfg.Lister.FollowPods(ctx, s.cfg.NodeName, func(pods []*v1.Pod, err error) {
			select {
			case heard <- told{pods, err}:
			case <-ctx.Done():
			}
		})
	})
	keeper := newKeeper(s.stored, s.log)
	if s.cfg.StateDir != "" {
		work.Go(func() { keeper.run(ctx) })
	}
	late := time.After(silence)
	for {
		select {
		case t := <-heard:
			s.take(t.pods, t.err, time.Now())
		case <-late:
			if s.startupTimeoutElapsed = true; s.ready {
				continue // as nearly always
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
		if set := s.toKeep(); set != nil {
			keeper.keep(set)
		}
	}
}

// useStoredPods turns to the stored pods if the apiserver does not answer. One that refuses this
// node is there: the node may have been removed from the cluster.
func (s *Source) useStoredPods(now time.Time) {
	if s.ready || s.provisional || !s.startupTimeoutElapsed || s.refused {
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
		s.pods[p.UID] = marked(p, s.cfg.Server, seen)
	}
	for i := range s.unusable {
		s.unusable[i].Since = now
	}
	s.provisional = true
	if s.failure == nil {
		s.failed("it has not answered", now)
	}
	s.failure.KeptRunning = len(s.pods) > 0
	s.log.Warn("the apiserver does not answer: running the pods that it had given this node", "pods", len(s.pods), "unusable", len(s.unusable))
}

// toKeep returns the set to store, if it is another one. What has ended, or is being
// deleted, is not to run again.
func (s *Source) toKeep() map[pod.UID]*pod.Desired {
	if !s.ready {
		return nil
	}
	set := maps.Clone(s.pods)
	maps.DeleteFunc(set, func(uid pod.UID, d *pod.Desired) bool { return s.over[uid] || d.Pod.DeletionTimestamp != nil })
	if s.kept != nil && maps.Equal(set, s.kept) {
		return nil
	}
	s.kept = set
	return set
}

// take applies what the Lister tells.
func (s *Source) take(pods []*v1.Pod, err error, now time.Time) {
	if err != nil {
		s.refused = apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
		s.failed(reason(err), now)
		return
	}
	if s.failure != nil {
		s.log.Info("the apiserver responds again")
		s.failure = nil
	}
	s.ready, s.provisional, s.refused, s.unusable = true, false, false, nil
	old, versions, rejected := s.pods, s.versions, s.rejected
	s.versions = make(map[pod.UID]string, len(pods))
	s.pods, s.over = make(map[pod.UID]*pod.Desired, len(pods)), map[pod.UID]bool{}
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
		if pod.Over(p.Status.Phase) {
			s.over[p.UID] = true
		}
	}
}

// ofOneAttempt is what differs between two attempts that fail alike: the number of an
// HTTP/2 stream, and the port on this side.
var ofOneAttempt = regexp.MustCompile(`stream ID \d+; |\[?[0-9a-fA-F.:]+\]?:\d+->`)

// reason is the text of an error without that: the same failure again is no news to who
// reads the log.
func reason(err error) string { return ofOneAttempt.ReplaceAllString(err.Error(), "") }

// failed records why the pods cannot be followed.
func (s *Source) failed(why string, now time.Time) {
	if s.failure == nil {
		s.failure = &pod.Problem{Origin: s.cfg.Server, Since: now, KeptRunning: len(s.pods) > 0,
			Hint: "check that the apiserver runs, that the kubeconfig's server and certificates are right, and that this node may list and watch its pods"}
	}
	s.failure.Message = "cannot follow the pods of this node: " + why
}

// desired is the pod in podd's terms: the same pointer if nothing of it changed but what
// podd itself wrote of its status, which is most of what a watch shows. That the pod has ended
// somebody else may have written, too.
func (s *Source) desired(p *v1.Pod, old *pod.Desired, now time.Time) *pod.Desired {
	if old != nil && (old.Pod.ResourceVersion == p.ResourceVersion || pod.Over(old.Pod.Status.Phase) == pod.Over(p.Status.Phase) && onlyOwnStatusDiffers(old.Pod, p)) {
		return old
	}
	seen := now
	if old != nil {
		seen = old.Seen
	}
	return marked(p, s.cfg.Server, seen)
}

// marked is a pod with the annotations of its source.
func marked(p *v1.Pod, server string, seen time.Time) *pod.Desired {
	own := *p // what follows the pods has p, too
	own.Annotations = maps.Clone(p.Annotations)
	if own.Annotations == nil {
		own.Annotations = map[string]string{}
	}
	own.Annotations[pod.AnnotationSource] = string(pod.SourceAPIServer)
	own.Annotations[pod.AnnotationSeen] = seen.Format(time.RFC3339Nano)
	return &pod.Desired{Pod: &own, Source: pod.SourceAPIServer, Origin: server, Seen: seen}
}

// onlyOwnStatusDiffers compares a pod that desired has marked with a newer version.
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
		equality.Semantic.DeepEqual(ofOthers(&marked.Status), ofOthers(&p.Status))
}

// ofOthers is what others than the node agent write of a status.
func ofOthers(s *v1.PodStatus) v1.PodStatus {
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
	// Those that were created first come first: two of one name are the old one, which
	// is being deleted, and the new one.
	slices.SortFunc(snap.Pods, func(a, b *pod.Desired) int {
		return cmp.Or(a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	if s.failure != nil {
		snap.Problems = append(snap.Problems, *s.failure)
	}
	return snap
}
