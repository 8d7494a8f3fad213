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

package registration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestSome(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"a"}, "a"},
		{[]string{"a", "b", "c"}, "a, b, c"},
		{[]string{"a", "b", "c", "d", "e"}, "a, b, c, 2 more"},
		{[]string{"Upper", "a b\n", "good", "", long}, "good, 4 more"},
		{[]string{"<script>"}, "1 more"},
	} {
		NewWithT(t).Expect(some(tt.names)).To(Equal(tt.want))
	}
}
