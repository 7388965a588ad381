{{/*
sluice.refuse fails if values are not supported. The error names each such value, the reason, and what to use instead.
*/}}
{{- define "sluice.refuse" -}}
{{- $v := .v -}}
{{- $errors := list -}}
{{- $settings := .Files.Get "files/settings.yaml" | fromYaml -}}
{{- with $.given._internal_defaults_do_not_set -}}
{{- $errors = append $errors "_internal_defaults_do_not_set: contains the defaults of istio-cni's chart, as in the output of helm get values --all; use the output of helm get values without --all" -}}
{{- end -}}
{{- /* In istio-cni's chart, profiles and platforms set values under cni, which take precedence over the same values outside of cni. */ -}}
{{- $cni := $.given.cni | default dict -}}
{{- if $v.platform -}}
{{- range $key, $default := dict "cniBinDir" "/opt/cni/bin" "cniConfDir" "/etc/cni/net.d" "cniNetnsDir" "/var/run/netns" "chained" true "provider" "default" -}}
{{- $own := index $.platform $key -}}
{{- if and (eq (toString (index $.given $key)) (toString $default)) (kindIs "invalid" (index $cni $key)) (ne (toString $own) (toString $default)) -}}
{{- $errors = append $errors (printf "%s %v: istio-cni's chart ignores this value with platform=%s, and uses %v; omit it, or set cni.%s" $key $default $v.platform $own $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $.platform.quota (eq (toString ($.given.resourceQuotas | default dict).enabled) "false") (kindIs "invalid" (dig "resourceQuotas" "enabled" nil $cni)) -}}
{{- $errors = append $errors (printf "resourceQuotas.enabled false: istio-cni's chart ignores this value with platform=%s; omit it, or set cni.resourceQuotas.enabled" $v.platform) -}}
{{- end -}}
{{- if and (eq (coalesce $v.profile $v.global.profile | default "") "ambient") (eq (toString ($.given.ambient | default dict).enabled) "false") (kindIs "invalid" (dig "ambient" "enabled" nil $cni)) -}}
{{- $errors = append $errors "ambient.enabled false: istio-cni's chart ignores this value with profile=ambient, and enables ambient mode; omit it, or omit profile, or set cni.ambient.enabled" -}}
{{- end -}}
{{- $taint := dict -}}
{{- if kindIs "map" $.given.pilot -}}{{- $taint = $.given.pilot.taint -}}{{- end -}}
{{- if and (kindIs "map" $taint) (not $v.startupTaint) -}}
{{- if eq (toString $taint.enabled) "true" -}}
{{- $errors = append $errors (printf "pilot.taint.enabled true: istiod removes the taint of a new node only if a pod of istio-cni is ready there; set startupTaint=%s, so that the agent removes it" ($taint.name | default "cni.istio.io/not-ready")) -}}
{{- end -}}
{{- end -}}
{{- if $v.ambient.enabled -}}
{{- if not $v.serve.enabled -}}
{{- $errors = append $errors "ambient.enabled: the plugin asks the agent to enroll pods, which needs serve.enabled=true" -}}
{{- end -}}
{{- if $v.ambient.shareHostNetworkNamespace -}}
{{- $errors = append $errors "ambient.shareHostNetworkNamespace: is not supported; the agent enters the network namespace of the node only to write rules; omit it" -}}
{{- end -}}
{{- if eq (toString $v.ambient.reconcileIptablesOnStartup) "false" -}}
{{- $errors = append $errors "ambient.reconcileIptablesOnStartup: cannot be disabled; the agent always corrects the rules of running pods when it starts; omit it" -}}
{{- end -}}
{{- if and $v.ambient.enableAmbientDetectionRetry (eq $v.unreadablePods "skip") -}}
{{- $errors = append $errors "ambient.enableAmbientDetectionRetry: contradicts unreadablePods=skip, with which a pod that cannot be read starts without redirection; omit one of them" -}}
{{- end -}}
{{- if $v.ambient.configDir -}}
{{- $errors = append $errors "ambient.configDir: is not read by Istio either; omit it" -}}
{{- end -}}
{{- end -}}
{{- $profile := coalesce $v.profile $v.global.profile | default "" -}}
{{- if hasKey $.platforms $profile -}}
{{- $errors = append $errors (printf "profile %s: is a platform; set platform=%s and omit profile" $profile $profile) -}}
{{- else if and (hasPrefix "platform-" $profile) (hasKey $.platforms (trimPrefix "platform-" $profile)) -}}
{{- $errors = append $errors (printf "profile %s: is a platform; set platform=%s and omit profile" $profile (trimPrefix "platform-" $profile)) -}}
{{- else if not (has $profile (list "" "ambient" "default" "minimal" "empty" "demo" "preview" "remote" "stable")) -}}
{{- $errors = append $errors (printf "profile %q: is not one of Istio's profiles; must be one of ambient, default, demo, empty, minimal, preview, remote, stable" $profile) -}}
{{- end -}}
{{- with toString $v.compatibilityVersion -}}
{{- if not (regexMatch "^1\\.[2-9][0-9]$" .) -}}
{{- $errors = append $errors (printf "compatibilityVersion %s: must be a version of Istio in quotes, such as \"1.30\", or empty" .) -}}
{{- else if $v.ambient.enabled -}}
{{- /* The values that a profile compatibility-version of istio-cni's chart sets, and the last such profile. */ -}}
{{- range list (list "dnsCapture" "1.24" "false" "") (list "reconcileIptablesOnStartup" "1.28" "false" "=true") (list "shareHostNetworkNamespace" "1.25" "true" "=false") -}}
{{- $key := first . -}}
{{- if and (le (toString $v.compatibilityVersion) (index . 1)) (kindIs "invalid" (dig "ambient" $key nil $cni)) -}}
{{- $errors = append $errors (printf "compatibilityVersion %v: means ambient.%s=%s in istio-cni's chart; set cni.ambient.%s%s, or omit compatibilityVersion" $v.compatibilityVersion $key (index . 2) $key (last .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $advice := dict
  "ambient.redirectMode" "omit it: pods are redirected by rules in their network namespaces"
  "logLevel" "set logging.level instead"
  "privileged" "omit it: the agent is never privileged"
  "psp_cluster_role" "omit it: Kubernetes no longer has PodSecurityPolicy"
  "repair.createEvents" "omit it: the agent always reports events"
  "rollingMaxUnavailable" "set updateStrategy.rollingUpdate.maxUnavailable instead"
  "taint" "set startupTaint instead" -}}
{{- $value := $v -}}
{{- range splitList "." $key -}}{{- $value = index $value . -}}{{- end -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $errors = append $errors (printf "%s: is a key of earlier versions of istio-cni's chart; %s" $key $advice) -}}
{{- end -}}
{{- end -}}
{{- range $key, $text := $settings.texts -}}
{{- $value := $v -}}
{{- range splitList "." $key -}}{{- $value = index $value . -}}{{- end -}}
{{- if not (kindIs "slice" $value) -}}{{- $value = without (list $value) "" -}}{{- end -}}
{{- range $value -}}
{{- if not (regexMatch $text.pattern .) -}}
{{- $errors = append $errors (printf "%s %s: must be %s" $key . $text.want) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $hub := $v.hub | default $v.global.hub -}}
{{- range list "docker.io/istio" "istio" "gcr.io/istio-" "registry.istio.io" -}}
{{- if or (eq $hub .) (hasPrefix (printf "%s/" .) $hub) (and (hasSuffix "-" .) (hasPrefix . $hub)) -}}
{{- $errors = append $errors (printf "hub %q: contains Istio's images; omit hub and tag, or set hub to a registry that contains Sluice's image" $hub) -}}
{{- end -}}
{{- end -}}
{{- $tag := toString ($v.tag | default $v.global.tag) -}}
{{- if and (regexMatch "^1\\.[2-9][0-9]([.-].*)?$" $tag) (not (contains "/" $v.image)) -}}
{{- $errors = append $errors (printf "tag %s: is a version of Istio; omit it, or set it to a tag of Sluice's image" $tag) -}}
{{- end -}}
{{- if contains "install-cni" $v.image -}}
{{- $errors = append $errors (printf "image %q: is Istio's installer; omit it, or set it to Sluice's image" $v.image) -}}
{{- end -}}
{{- if not (has ($v.variant | default $v.global.variant | default "") (list "" "distroless")) -}}
{{- $errors = append $errors (printf "variant %q: there is only one image, without a shell; omit it, or set it to distroless" ($v.variant | default $v.global.variant)) -}}
{{- end -}}
{{- if or $v.repair.hub $v.repair.tag -}}
{{- $errors = append $errors "repair.hub and repair.tag: repairs have no separate image, neither here nor in istio-cni; omit them" -}}
{{- end -}}
{{- if and $v.global.nativeNftables (eq $v.backend "legacy") -}}
{{- $errors = append $errors "backend legacy: contradicts global.nativeNftables; omit one of them" -}}
{{- end -}}
{{- if and $v.istioOwnedCNIConfig (not $v.chained) -}}
{{- $errors = append $errors "istioOwnedCNIConfig: adds the plugin to a copy of the primary configuration, which needs chained=true" -}}
{{- end -}}
{{- if and (not $v.chained) (hasSuffix ".conflist" $v.cniConfFileName) -}}
{{- $errors = append $errors (printf "cniConfFileName %s: with chained=false the file contains a single plugin; must end in .conf" $v.cniConfFileName) -}}
{{- end -}}
{{- if and (not $v.mountNetns) (not $v.searchProc) $v.entersPods -}}
{{- $errors = append $errors "mountNetns and searchProc: audit, repair in place and ambient mode need one of them to find network namespaces; set one to true, or audit.enabled, repair.repairPods and ambient.enabled to false" -}}
{{- end -}}
{{- range $key, $setting := dict "apiBudget" (list $v.apiBudget "2m") "apiTryTimeout" (list $v.apiTryTimeout "2m")
  "audit.interval" (list $v.audit.interval "24h") "resyncInterval" (list $v.resyncInterval "24h")
  "uninstallTimeout" (list $v.uninstallTimeout "24h") -}}
{{- $time := include "sluice.milliseconds" (first $setting) | float64 -}}
{{- if or (not (regexMatch "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$" (first $setting))) (lt $time 100.0) (gt $time (include "sluice.milliseconds" (last $setting) | float64)) -}}
{{- $errors = append $errors (printf "%s %v: must be a duration from 100ms to %s" $key (first $setting) (last $setting)) -}}
{{- end -}}
{{- end -}}
{{- $limits := .Files.Get "files/limits.yaml" | fromYaml -}}
{{- $reserve := ternary $limits.ambientUninstallReserveSeconds $limits.uninstallReserveSeconds $v.ambient.enabled -}}
{{- if gt (include "sluice.milliseconds" $v.uninstallTimeout | float64) (mulf 1000 (subf $v.terminationGracePeriodSeconds $reserve)) -}}
{{- $errors = append $errors (printf "uninstallTimeout %v: must be at least %ds less than terminationGracePeriodSeconds, %d, after which the pod is killed; uninstallation has other steps, which may need %ds%s" $v.uninstallTimeout (int $reserve) (int $v.terminationGracePeriodSeconds) (int $reserve) (ternary " in ambient mode" "" $v.ambient.enabled)) -}}
{{- end -}}
{{- $surge := (($v.updateStrategy | default dict).rollingUpdate | default dict).maxSurge | default "" -}}
{{- if not (has $surge (list "" "0" "0%")) -}}
{{- $errors = append $errors (printf "updateStrategy.rollingUpdate.maxSurge %v: two agents on one node would overwrite each other's configuration; must be 0" $surge) -}}
{{- end -}}
{{- if and $v.monitoringPort (eq (int $v.monitoringPort) (int $v.healthPort)) -}}
{{- $errors = append $errors (printf "monitoringPort %d: must differ from healthPort; the defaults are 15014 and 8000, 0 disables monitoring" (int $v.monitoringPort)) -}}
{{- end -}}
{{- range $key := list "podMonitor" "prometheusRule" -}}
{{- if and (index $v $key).enabled (not $v.monitoringPort) -}}
{{- $errors = append $errors (printf "%s.enabled: needs the metrics of the agents; set monitoringPort to a port, or omit %s.enabled" $key $key) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "cniBinDir" "cniConfDir" "cniCacheDir" "cniNetnsDir" -}}
{{- $dir := clean (index $v $key | default "/x") -}}
{{- if has $dir (list "/" "/boot" "/dev" "/etc" "/home" "/lib" "/lib64" "/opt" "/proc" "/root" "/run" "/sbin" "/sys" "/tmp" "/usr" "/var" "/var/lib" "/var/run") -}}
{{- $errors = append $errors (printf "%s %s: is a system directory, which would be mounted into the agent; must be a directory for CNI only, such as /opt/cni/bin or /etc/cni/net.d" $key (index $v $key)) -}}
{{- end -}}
{{- end -}}
{{- $resources := include "sluice.resources" $v | fromYaml -}}
{{- range $kind := list "requests" "limits" -}}
{{- range $name, $amount := index $resources $kind -}}
{{- if not (include "sluice.quantity" $amount) -}}
{{- $errors = append $errors (printf "resources.%s.%s %v: must be a quantity, such as 100m or 256Mi" $kind $name $amount) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $requests := $resources.requests | default dict -}}
{{- range $name, $limit := $resources.limits -}}
{{- $most := include "sluice.quantity" $limit -}}
{{- if and (eq $name "memory") $most (lt (float64 $most) (mulf $limits.minimumMemoryMebibytes 1048576)) -}}
{{- $errors = append $errors (printf "resources.limits.memory %v: is not enough for the agent; must be at least %dMi, or unset" $limit (int $limits.minimumMemoryMebibytes)) -}}
{{- end -}}
{{- if and $most (gt (include "sluice.quantity" (index $requests $name) | float64) (float64 $most)) -}}
{{- $errors = append $errors (printf "resources.requests.%s %v: is more than resources.limits.%s, %v" $name (index $requests $name) $name $limit) -}}
{{- end -}}
{{- end -}}
{{- range $annotation, $_ := $v.podAnnotations -}}
{{- if hasPrefix $.apparmor $annotation -}}
{{- $container := trimPrefix $.apparmor $annotation -}}
{{- if not (has $container (list "install-cni" "sluice-node")) -}}
{{- $errors = append $errors (printf "podAnnotations.%s: names no container of the pod; must end in /install-cni or /sluice-node" $annotation) -}}
{{- else if and (eq $container "install-cni") (hasKey $v.podAnnotations (print $.apparmor "sluice-node")) -}}
{{- $errors = append $errors (printf "podAnnotations.%s: means the same container as %ssluice-node; omit one of them" $annotation $.apparmor) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := $v.env -}}
{{- if hasKey $settings.refused $name -}}
{{- $errors = append $errors (printf "env.%s: %s" $name (index $settings.refused $name)) -}}
{{- else if hasKey $settings.keys $name -}}
{{- $errors = append $errors (printf "env.%s: %s" $name (index $settings.keys $name)) -}}
{{- else if and (regexMatch "^(SLUICE|AMBIENT|REPAIR|ISTIO_OWNED)_" $name) (not (has $name $settings.accepted)) -}}
{{- $errors = append $errors (printf "env.%s: is not a variable of the agent; correct or omit it" $name) -}}
{{- end -}}
{{- end -}}
{{- if $errors -}}
{{- fail (printf "unsupported values:\n  values.%s" (join "\n  values." $errors)) -}}
{{- end -}}
{{- end -}}

{{/* sluice.milliseconds converts a duration such as 1m30s or 1.5m. */}}
{{- define "sluice.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit .) (index $units $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* sluice.quantity converts a quantity of Kubernetes, such as 100m, 256Mi, 1e9 or 1.5G, to a number. The result for anything else is empty. */}}
{{- define "sluice.quantity" -}}
{{- $units := dict "" 1 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- $text := . | toString -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $number := trimSuffix $unit $text -}}
{{- if and (hasKey $units $unit) (regexMatch "^\\+?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?$" $number) -}}
{{- mulf (float64 $number) (index $units $unit) -}}
{{- end -}}
{{- end -}}
