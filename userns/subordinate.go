package userns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// subordinateUser is the user that has the subordinate IDs for pods: the kubelet's, so
// that a node that is set up for it needs no changes.
const subordinateUser = "kubelet"

// NodeRange is the range that the administrator reserved for pods: the subordinate IDs
// of the user kubelet (/etc/subuid, or another source of getsubids), which must be the
// same for users and groups. Without that user or getsubids it is the zero Range.
// Otherwise anything but one common range is an error, as in the kubelet: the source may
// be remote and unavailable. It blocks for two short commands.
func NodeRange(ctx context.Context) (Range, error) {
	if _, err := user.Lookup(subordinateUser); err != nil {
		if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
			return Range{}, nil
		}
		return Range{}, fmt.Errorf("look up the user %s: %w", subordinateUser, err)
	}
	getsubids, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return Range{}, nil
	}
	if err != nil {
		return Range{}, fmt.Errorf("look for getsubids: %w", err)
	}
	users, err := exec.CommandContext(ctx, getsubids, subordinateUser).Output()
	if err != nil {
		return Range{}, fmt.Errorf("ask for the subordinate users of %s: %w", subordinateUser, err)
	}
	groups, err := exec.CommandContext(ctx, getsubids, "-g", subordinateUser).Output()
	if err != nil {
		return Range{}, fmt.Errorf("ask for the subordinate groups of %s: %w", subordinateUser, err)
	}
	if string(users) != string(groups) {
		return Range{}, fmt.Errorf("the subordinate users and groups of %s differ: make them the same", subordinateUser)
	}
	return parseSubordinate(string(users))
}

// parseSubordinate reads "0: kubelet 65536 2147483648".
func parseSubordinate(text string) (Range, error) {
	f := strings.Fields(text)
	if len(f) != 4 || strings.Count(strings.TrimSpace(text), "\n") > 0 {
		return Range{}, fmt.Errorf("the subordinate IDs of %s are %q: they must be one range", subordinateUser, text)
	}
	first, err := strconv.ParseUint(f[2], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("the subordinate IDs of %s: %w", subordinateUser, err)
	}
	length, err := strconv.ParseUint(f[3], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("the subordinate IDs of %s: %w", subordinateUser, err)
	}
	return Range{First: uint32(first), Length: uint32(length)}, nil
}
