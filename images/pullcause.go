package images

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
)

// cause says why a pull failed. It is a small closed set, for the metric, the hint and the
// back-off.
type cause string

const (
	causeUnauthorized cause = "unauthorized"
	causeForbidden    cause = "forbidden"
	causeNotFound     cause = "not_found"
	causeRateLimited  cause = "rate_limited"
	causeRegistry     cause = "registry_error"
	causeNoSuchHost   cause = "no_such_host"
	causeUnreachable  cause = "unreachable"
	causeTLS          cause = "tls"
	causeBroken       cause = "broken_content"
	causeDiskFull     cause = "disk_full"
	causePlatform     cause = "platform"
	causeOther        cause = "other"
)

// causes classifies by the runtime's message, since CRI has one code for all of
// them. The texts are those of containerd, Go's network packages and registries;
// CRI-O shares most. The first match counts.
var causes = []struct {
	cause  cause
	words  []string
	advice string
}{
	{causeDiskFull, []string{"no space left on device", "disk quota exceeded"},
		"the disk is full; podd removes unused images"},
	{causeRateLimited, []string{"429 too many requests", "toomanyrequests", "pull rate limit"},
		"the registry's pull rate limit was reached; the limit is often higher with credentials"},
	{causeUnauthorized, []string{"401 unauthorized", "authorization failed", "authentication required", "failed to authorize", "no basic auth credentials", "incorrect username or password"},
		"the registry requires credentials, or different ones: check imagePullSecrets, the node's docker configuration, credential provider plugins"},
	{causeForbidden, []string{"403 forbidden", "insufficient_scope", "access denied", "access to the resource is denied"},
		"these credentials may not pull this image, or there is no such image"},
	{causeNoSuchHost, []string{"no such host", "server misbehaving", "temporary failure in name resolution"},
		"the registry's name could not be resolved: check its spelling and the node's DNS"},
	{causeTLS, []string{"x509:", "tls:", "server gave http response to https client"},
		"the registry's certificate or protocol was not accepted: check the runtime's configuration for this registry"},
	{causeBroken, []string{"unexpected commit digest", "failed size validation", "failed precondition", "unexpected eof", "content digest", "digest mismatch", "gzip: invalid", "invalid checksum", "unexpected media type", "invalid manifest", "failed to extract layer"},
		"what the registry sent does not match its manifest"},
	{causePlatform, []string{"no match for platform"},
		"the registry has this image only for other platforms"},
	{causeRegistry, []string{"500 internal server error", "502 bad gateway", "503 service unavailable", "504 gateway timeout", "registryunavailable"},
		"the registry failed or is overloaded"},
	{causeUnreachable, []string{"connection refused", "connection reset", "i/o timeout", "no route to host", "network is unreachable", "context deadline exceeded", "tls handshake timeout", "context canceled", "eof", "timed out"},
		"the registry could not be reached, or stopped responding"},
	{causeNotFound, []string{"not found", "manifest unknown", "name unknown", "404"},
		"the registry has no such image: check its name and tag"},
}

// causeOf classifies a failed pull of an image. It ignores the content of names: the
// image's own name (acme/app-tls:1 would look like a TLS error), addresses, and quoted
// text, which the registry may control.
func causeOf(image string, err error) (cause, string) {
	text := urlsAndQuotes.ReplaceAllString(strings.ToLower(err.Error()), "")
	text = imageNamePattern(image).ReplaceAllString(text, " ")
	for _, row := range causes {
		if row.cause == causeDiskFull && strings.Contains(text, "unexpected status") {
			continue // the registry's own disk, or a lie that would make podd remove images
		}
		for _, w := range row.words {
			if strings.Contains(text, w) {
				return row.cause, row.advice
			}
		}
	}
	return causeOther, ""
}

// urlsAndQuotes matches addresses and quoted text.
var urlsAndQuotes = regexp.MustCompile(`[a-z]+://[^\s"]+|"(?:[^"\\]|\\.)*"`)

// imageNamePattern matches the spellings of an image's name in errors, as whole words.
func imageNamePattern(image string) *regexp.Regexp {
	names := []string{image}
	if named, err := reference.ParseNormalizedNamed(image); err == nil {
		full := reference.TagNameOnly(named)
		names = append(names, full.String(), reference.FamiliarString(full), full.Name(), reference.FamiliarName(full), reference.Path(full))
	}
	for i, name := range names {
		names[i] = regexp.QuoteMeta(strings.ToLower(name))
	}
	return regexp.MustCompile(`(?:^|[\s(\[])(?:` + strings.Join(names, "|") + `)(?:$|[\s)\],;:])`)
}

var retryAfter = regexp.MustCompile(`(?i)retry[- ]after["']?[:=]?\s*["']?(\d{1,6})`)

// retryHint returns how long the registry asks to wait, if the runtime passes that on
// (containerd does not); otherwise 0. It is bounded.
func retryHint(err error) time.Duration {
	m := retryAfter.FindStringSubmatch(err.Error())
	if m == nil {
		return 0
	}
	s, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		return 0
	}
	return min(time.Duration(s)*time.Second, backoffForget)
}
