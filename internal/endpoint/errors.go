/*
Copyright 2026 The capi-fleet Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package endpoint

import (
	"errors"
	"fmt"

	fleetv1 "github.com/capi-fleet/capi-fleet/api/v1alpha1"
)

func isError(err error) bool {
	var ours *Error
	return errors.As(err, &ours)
}

// withReason gives err, an *Error or nil, its reason.
func withReason(err error, reason string) error {
	var ours *Error
	if !errors.As(err, &ours) {
		return err
	}
	return &Error{Reason: reason, Message: ours.Message}
}

func caUnavailable(format string, args ...any) error {
	return &Error{Reason: fleetv1.CAUnavailableReason, Message: fmt.Sprintf(format, args...)}
}
