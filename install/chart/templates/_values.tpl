{{/*
sluice.values returns the effective values as YAML: values under "cni" override the others, as in Istio's charts, the platform provides
defaults, and a missing value or null means the default. All other templates use it.
*/}}
{{- define "sluice.values" -}}
{{- $v := mustMergeOverwrite (deepCopy .Values) (deepCopy (.Values.cni | default dict)) -}}
{{- include "sluice.setDefaults" (dict "values" $v "defaults" (.Files.Get "files/defaults.yaml" | fromYaml)) -}}
{{- $name := coalesce $v.platform $v.global.platform | default "" -}}
{{- $platforms := .Files.Get "files/platforms.yaml" | fromYaml -}}
{{- if and $name (or (eq $name "default") (not (hasKey $platforms $name))) -}}
{{- fail (printf "values.platform %q: must be one of %s" $name (without (keys $platforms) "default" | sortAlpha | join ", ")) -}}
{{- end -}}
{{- /* istio-cni's chart detects GKE in the same way. */ -}}
{{- if and (not $name) (contains "-gke" .Capabilities.KubeVersion.Version) -}}
{{- $_ := set $platforms.default "cniBinDir" $platforms.gke.cniBinDir -}}
{{- end -}}
{{- $platform := mustMergeOverwrite $platforms.default (ternary (index $platforms $name) dict (ne $name "")) -}}
{{- range $key := list "cniBinDir" "cniConfDir" "cniNetnsDir" "cniConfFileName" "provider" "seLinuxOptions" -}}
{{- if not (index $v $key) -}}{{- $_ := set $v $key (index $platform $key) -}}{{- end -}}
{{- end -}}
{{- if kindIs "invalid" $v.chained -}}{{- $_ := set $v "chained" $platform.chained -}}{{- end -}}
{{- if kindIs "invalid" $v.resourceQuotas.enabled -}}{{- $_ := set $v.resourceQuotas "enabled" $platform.quota -}}{{- end -}}
{{- if kindIs "invalid" $v.ambient.enabled -}}
{{- $_ := set $v.ambient "enabled" (eq (coalesce $v.profile $v.global.profile | default "") "ambient") -}}
{{- end -}}
{{- $_ := set $v "platform" $name -}}
{{- $repairs := and $v.repair.enabled $v.repair.repairPods -}}
{{- $_ := set $v "entersPods" (or $repairs $v.audit.enabled $v.ambient.enabled) -}}
{{- $apparmor := "container.apparmor.security.beta.kubernetes.io/" -}}
{{- include "sluice.refuse" (dict "v" $v "apparmor" $apparmor "given" .Values "platform" $platform "platforms" (omit $platforms "default") "Files" .Files) -}}
{{- $_ := set $v "logLevel" (include "sluice.logLevel" (coalesce $v.logging.level $v.global.logging.level "info")) -}}
{{- if $v.global.nativeNftables -}}{{- $_ := set $v "backend" "nft" -}}{{- end -}}
{{- /* Ambient mode needs /proc to find the network namespace of the node and the kubelet. */ -}}
{{- $_ := set $v "readsProc" (or (and $v.searchProc $v.entersPods) $v.ambient.enabled) -}}
{{- $_ := set $v "knowsPods" (or $v.serve.enabled $v.audit.enabled $v.repair.enabled) -}}
{{- include "sluice.setLabelTexts" (concat ($v.enablementSelectors | default list) ($v.ambient.enablementSelectors | default list)) -}}
{{- range list $v.daemonSetLabels $v.podLabels $v.podAnnotations $v.env $v.podMonitor.labels $v.prometheusRule.labels $v.dashboard.labels -}}
{{- include "sluice.setTexts" . -}}
{{- end -}}
{{- /* istio-cni's container is named install-cni. */ -}}
{{- range $annotation, $profile := pick $v.podAnnotations (print $apparmor "install-cni") -}}
{{- $_ := unset $v.podAnnotations $annotation -}}
{{- $_ := set $v.podAnnotations (print $apparmor "sluice-node") $profile -}}
{{- end -}}
{{- $_ := set $v "appArmorUnconfined" (and $v.readsProc (not (hasKey $v.podAnnotations (print $apparmor "sluice-node")))) -}}
{{- range $v.enablementSelectors -}}
{{- if hasKey . "namespaceSelector" -}}{{- $_ := set $v "asksNamespaces" true -}}{{- end -}}
{{- end -}}
{{- if $v.ambient.enabled -}}
{{- $selectors := $v.ambient.enablementSelectors -}}
{{- if kindIs "invalid" $selectors -}}{{- $_ := set $v "asksNamespaces" true -}}{{- end -}}
{{- range $selectors -}}
{{- if hasKey . "namespaceSelector" -}}{{- $_ := set $v "asksNamespaces" true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $v "cluster" (has $v.global.resourceScope (list "all" "cluster")) -}}
{{- $_ := set $v "namespaced" (has $v.global.resourceScope (list "all" "namespace")) -}}
{{- /* untested is the reason why helm test starts no pod; empty if it starts one */ -}}
{{- $_ := set $v "untested" "" -}}
{{- if has $.Release.Namespace $v.excludeNamespaces -}}
{{- $_ := set $v "untested" (printf "excludeNamespaces contains %s" $.Release.Namespace) -}}
{{- else if $v.enablementSelectors -}}
{{- $_ := set $v "untested" "enablementSelectors may not select its pod" -}}
{{- else if not $v.namespaced -}}
{{- $_ := set $v "untested" "resourceScope is cluster" -}}
{{- else if and (not $v.chained) (ne $v.provider "multus") -}}
{{- $_ := set $v "untested" "with chained=false, its pod needs the NetworkAttachmentDefinition of provider=multus" -}}
{{- end -}}
{{- toYaml $v -}}
{{- end -}}

{{/*
sluice.setDefaults replaces missing values and null by their defaults. Helm deletes a key whose value is null, and with
helm upgrade --reuse-values the keys that the earlier version of the chart did not have are missing. Single labels are not replaced, so that
null removes a label.
*/}}
{{- define "sluice.setDefaults" -}}
{{- $values := .values -}}
{{- range $key, $default := .defaults -}}
{{- if kindIs "invalid" (index $values $key) -}}
{{- $_ := set $values $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" (index $values $key)) (ne $key "labels") -}}
{{- include "sluice.setDefaults" (dict "values" (index $values $key) "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
sluice.setLabelTexts converts the numbers and Booleans in enablement selectors to strings, as istio-cni does: YAML reads the value of the label
in "mesh: true" as a Boolean.
*/}}
{{- define "sluice.setLabelTexts" -}}
{{- range $selector := . -}}
{{- range $key := list "podSelector" "namespaceSelector" -}}
{{- $labels := (index $selector $key | default dict).matchLabels | default dict -}}
{{- range $label, $value := $labels -}}
{{- $_ := set $labels $label (include "sluice.labelText" $value) -}}
{{- end -}}
{{- range $expression := (index $selector $key | default dict).matchExpressions -}}
{{- $texts := list -}}
{{- range $expression.values -}}{{- $texts = append $texts (include "sluice.labelText" .) -}}{{- end -}}
{{- if $texts -}}{{- $_ := set $expression "values" $texts -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* sluice.setTexts converts the numbers and Booleans in labels, annotations or variables to strings, because Kubernetes accepts no others. */}}
{{- define "sluice.setTexts" -}}
{{- $values := . -}}
{{- range $key, $value := $values -}}
{{- $_ := set $values $key (include "sluice.labelText" $value) -}}
{{- end -}}
{{- end -}}

{{- define "sluice.labelText" -}}
{{- if kindIs "string" . -}}{{- . -}}{{- else -}}{{- toJson . -}}{{- end -}}
{{- end -}}

{{/* sluice.logLevel returns the most verbose level of a level or of Istio's list of scope:level. */}}
{{- define "sluice.logLevel" -}}
{{- $levels := list "debug" "info" "warn" "error" "fatal" "none" -}}
{{- $least := len $levels -}}
{{- range splitList "," . -}}
{{- $word := splitList ":" . | last | trim -}}
{{- if not (has $word $levels) -}}
{{- fail (printf "values.logging.level %q: must be %s, or a list of scope:level" $word (join ", " $levels)) -}}
{{- end -}}
{{- range $i, $level := $levels -}}{{- if and (eq $level $word) (lt $i $least) -}}{{- $least = $i -}}{{- end -}}{{- end -}}
{{- end -}}
{{- index $levels $least -}}
{{- end -}}

{{/*
sluice.resources returns the container's resources: its own, or the global ones. As in istio-cni's chart, empty amounts are omitted.
A larger request of memory replaces a limit of 256Mi, the default, because istio-cni's chart has no limit.
*/}}
{{- define "sluice.resources" -}}
{{- $kept := dict -}}
{{- range $kind, $amounts := .resources | default .global.defaultResources -}}
{{- if kindIs "map" $amounts -}}
{{- range $name, $amount := $amounts -}}{{- if not $amount -}}{{- $_ := unset $amounts $name -}}{{- end -}}{{- end -}}
{{- end -}}
{{- if $amounts -}}{{- $_ := set $kept $kind $amounts -}}{{- end -}}
{{- end -}}
{{- $request := ($kept.requests | default dict).memory -}}
{{- $limits := $kept.limits | default dict -}}
{{- if and $request (eq (toString $limits.memory) "256Mi") (gt (include "sluice.quantity" $request | float64) (include "sluice.quantity" "256Mi" | float64)) -}}
{{- $_ := set $kept "limits" (set (deepCopy $limits) "memory" $request) -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}
