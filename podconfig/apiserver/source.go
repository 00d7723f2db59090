package apiserver

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podd/internal/pod"
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
	// Log may be nil.
	Log *slog.Logger
}

// Source implements podconfig.Source.
type Source struct {
	cfg Config
	log *slog.Logger
	// pods are the last known, by UID.
	pods    map[pod.UID]*pod.Desired
	ready   bool
	failure *pod.Problem
}

// New makes a Source; nothing is requested before Run.
func New(cfg Config) *Source {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Source{cfg: cfg, log: log.With("source", pod.SourceAPIServer, "server", cfg.Server)}
}

// Name is pod.SourceAPIServer.
func (s *Source) Name() pod.Source { return pod.SourceAPIServer }

// Run follows the pods until ctx ends.
func (s *Source) Run(ctx context.Context, out chan<- podconfig.Snapshot) error {
	s.cfg.Lister.FollowPods(ctx, s.cfg.NodeName, func(pods []*v1.Pod, err error) {
		s.take(pods, err, time.Now())
		select {
		case out <- s.snapshot():
		case <-ctx.Done():
		}
	})
	return ctx.Err()
}

// take applies what the Lister tells.
func (s *Source) take(pods []*v1.Pod, err error, now time.Time) {
	if err != nil {
		if s.failure == nil {
			s.failure = &pod.Problem{Origin: s.cfg.Server, Since: now, KeptRunning: len(s.pods) > 0,
				Hint: "check that the apiserver runs, that the kubeconfig's server and certificates are right, and that this node may list and watch its pods"}
		}
		s.failure.Message = "cannot follow the pods of this node: " + err.Error()
		return
	}
	if s.failure != nil {
		s.log.Info("the apiserver responds again")
		s.failure = nil
	}
	s.ready = true
	old := s.pods
	s.pods = make(map[pod.UID]*pod.Desired, len(pods))
	for _, p := range pods {
		if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
			continue
		}
		s.pods[p.UID] = s.desired(p, old[p.UID], now)
	}
}

// desired is the pod in podd's terms: the same pointer if nothing of it changed but what
// podd itself wrote of its status, which is most of what a watch shows.
func (s *Source) desired(p *v1.Pod, old *pod.Desired, now time.Time) *pod.Desired {
	if old != nil && (old.Pod.ResourceVersion == p.ResourceVersion || onlyOwnStatusDiffers(old.Pod, p)) {
		return old
	}
	seen := now
	if old != nil {
		seen = old.Seen
	}
	marked := *p // what follows the pods has p, too
	marked.Annotations = maps.Clone(p.Annotations)
	if marked.Annotations == nil {
		marked.Annotations = map[string]string{}
	}
	marked.Annotations[pod.AnnotationSource] = string(pod.SourceAPIServer)
	marked.Annotations[pod.AnnotationSeen] = seen.Format(time.RFC3339Nano)
	return &pod.Desired{Pod: &marked, Source: pod.SourceAPIServer, Origin: s.cfg.Server, Seen: seen}
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
	snap := podconfig.Snapshot{Incomplete: !s.ready}
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
