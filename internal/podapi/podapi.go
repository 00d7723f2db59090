package podapi

import (
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
)

// Default fills in what a manifest leaves out, as the apiserver does when it
// reads a v1.Pod (restartPolicy, imagePullPolicy, probe periods …), and as it stores one: the
// resources of the pod itself get what follows from each other and from its containers'.
// A kubelet leaves these as they are in a static pod since 1.37, and gives it another QoS
// class than the same pod in a cluster. Default changes the pod in place and is idempotent.
func Default(p *v1.Pod) {
	corev1.SetObjectDefaults_Pod(p)
	if p.Spec.Resources == nil {
		return
	}
	in, err := toInternal(p)
	if err != nil {
		return // which Validate reports
	}
	podutil.DefaultPodLevelResources(in)
	var r v1.ResourceRequirements
	if err := corev1.Convert_core_ResourceRequirements_To_v1_ResourceRequirements(in.Spec.Resources, &r, nil); err == nil {
		p.Spec.Resources = &r
	}
}

// allowPrivileged makes validation accept privileged containers, as the kubelet does at its
// start (cmd/kubelet/app, RunKubelet) and apiservers do with --allow-privileged. Upstream
// keeps this in a global that takes its first value.
var allowPrivileged = sync.OnceFunc(func() { capabilities.Setup(true, 0) })

// Validate returns the apiserver's objections to a new Pod, in its words; empty for a good
// one. The pod must have been defaulted and have a namespace. The options are those of
// upstream's kubelet for static pods (pkg/kubelet/config, tryDecodeSinglePod): the defaults
// of the feature gates of that release.
func Validate(p *v1.Pod) field.ErrorList {
	allowPrivileged()
	in, err := toInternal(p)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&in.Spec, nil, &in.ObjectMeta, nil)
	return validation.ValidatePodCreate(in, opts)
}

// APIReference returns the kind of API object that the pod refers to and that a pod without
// an apiserver cannot have ("secrets", "configmaps (via projected volumes)" …), as
// upstream's kubelet words it since v1.34. It is empty if there is none. Like upstream, it
// stops at the first.
func APIReference(p *v1.Pod) (string, error) {
	in, err := toInternal(p)
	if err != nil {
		return "", err
	}
	_, resource, err := podutil.HasAPIObjectReference(in)
	return resource, err
}

// toInternal converts to upstream's hub type. The conversion shares memory with
// its input and drops some annotations, hence the copy.
func toInternal(p *v1.Pod) (*core.Pod, error) {
	var in core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(p.DeepCopy(), &in, nil); err != nil {
		return nil, fmt.Errorf("convert pod to upstream's internal form: %w", err)
	}
	return &in, nil
}
