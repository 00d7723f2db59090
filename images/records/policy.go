package records

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Policy says for which present images a pod must have credentials. The zero value is
// AlwaysVerify.
type Policy struct {
	neverVerify, trustPreloaded bool
	names                       map[string]bool
	prefixes                    []string
}

// NewPolicy returns the policy of imagePullCredentialsVerificationPolicy, with the patterns
// of preloadedImagesVerificationAllowlist: names of images without a tag, or prefixes of
// them that end in "/*". Its error is meant for users.
func NewPolicy(name kubeletv1beta1.ImagePullCredentialsVerificationPolicy, allowed []string) (Policy, error) {
	var p Policy
	switch name {
	case kubeletv1beta1.NeverVerify:
		p.neverVerify = true
	case kubeletv1beta1.NeverVerifyPreloadedImages:
		p.trustPreloaded = true
	case kubeletv1beta1.NeverVerifyAllowlistedImages, kubeletv1beta1.AlwaysVerify:
	default:
		return p, fmt.Errorf("%q is unknown: give %s, %s, %s or %s", name, kubeletv1beta1.NeverVerify,
			kubeletv1beta1.NeverVerifyPreloadedImages, kubeletv1beta1.NeverVerifyAllowlistedImages, kubeletv1beta1.AlwaysVerify)
	}
	if len(allowed) > 0 && name != kubeletv1beta1.NeverVerifyAllowlistedImages {
		return p, fmt.Errorf("has no list with %s: only %s uses preloadedImagesVerificationAllowlist", name, kubeletv1beta1.NeverVerifyAllowlistedImages)
	}
	for _, pattern := range allowed {
		if err := p.addPattern(pattern); err != nil {
			return p, fmt.Errorf("preloadedImagesVerificationAllowlist has %q: %w", pattern, err)
		}
	}
	return p, nil
}

// addPattern adds a pattern, by the kubelet's rules (pkg/kubelet/images/pullmanager).
func (p *Policy) addPattern(pattern string) error {
	prefix, wildcard := strings.CutSuffix(pattern, "*")
	switch {
	case pattern != strings.TrimSpace(pattern):
		return errors.New("spaces around the name are not allowed")
	case pattern == "":
		return errors.New("give the name of an image, or a prefix that ends in /*")
	case strings.Contains(prefix, "*") || wildcard && !strings.HasSuffix(prefix, "/"):
		return errors.New("only a pattern that ends in /* is a wildcard")
	case wildcard && prefix == "/":
		return errors.New("name at least the registry")
	case wildcard:
		p.prefixes = append(p.prefixes, prefix)
		return nil
	}
	name, err := withoutTag(pattern)
	switch {
	case err != nil:
		return fmt.Errorf("is no name of an image: %w", err)
	case name != pattern:
		return errors.New("leave out the tag or digest: an image is allowed with all of them, or not at all")
	}
	if p.names == nil {
		p.names = map[string]bool{}
	}
	p.names[name] = true
	return nil
}

// mustVerify reports whether a pod must have had credentials for the image.
func (p *Policy) mustVerify(image string, pulled bool) bool {
	switch {
	case p.neverVerify:
		return false
	case p.trustPreloaded:
		return pulled
	}
	name, err := withoutTag(image)
	if err != nil {
		name = image
	}
	if p.names[name] {
		return false
	}
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

// withoutTag returns an image's name as a pod has it, without its tag and digest.
func withoutTag(image string) (string, error) {
	ref, err := reference.Parse(image)
	if err != nil {
		return "", err
	}
	if digested, ok := ref.(reference.Digested); ok {
		image = strings.TrimSuffix(image, "@"+digested.Digest().String())
	}
	if tagged, ok := ref.(reference.Tagged); ok {
		image = strings.TrimSuffix(image, ":"+tagged.Tag())
	}
	return image, nil
}
